package main

import (
	"errors"
	"log"
	"net"
	"time"
)

// acceptPause is how long acceptAll waits after an error, which comes again at once while this process has no descriptors.
const acceptPause = 50 * time.Millisecond

// acceptAll calls serve with each connection until the listener is closed, and returns net.ErrClosed then. No other error
// ends it: without descriptors, the kernel keeps the connection, and reports no event when there are some again.
//
// what names the listener in the log. serve must not wait for the connection.
func acceptAll[C net.Conn](what string, accept func() (C, error), serve func(C)) error {
	for {
		connection, err := accept()
		if errors.Is(err, net.ErrClosed) {
			return err
		}
		if err != nil {
			log.Printf("%s: a connection cannot be accepted: %v", what, err)
			time.Sleep(acceptPause)
			continue
		}
		serve(connection)
	}
}
