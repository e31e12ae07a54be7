package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// What a waiter waits for.
const (
	// untilClient: a client of a control plane whose process does not run is held.
	untilClient = "client"
	// untilListening: this process listens at the port of a control plane.
	untilListening = "listening"
	// untilClosed: the connections of clients from before a control plane was closed have ended; see closedFile.
	untilClosed = "closed"
)

const (
	// maxWaiters is how many wait for the same control plane at most.
	maxWaiters = 16
	// maxQuestion bounds the line of a waiter.
	maxQuestion = 4096
	askTime     = 5 * time.Second
)

// question is the only line that a waiter sends, and verdict the only one that it gets.
type question struct {
	UID   string `json:"uid"`
	Until string `json:"until"`
}

type verdict struct {
	Error string `json:"error,omitempty"`
}

// waiter is one connection to the socket.
type waiter struct {
	what string
	once sync.Once
	done chan struct{}
}

// answer ends the waiting.
func (w *waiter) answer() {
	w.once.Do(func() { close(w.done) })
}

// listenForWaiters serves the socket of the operator, which only the user of this process can open.
func listenForWaiters(folder string, all *planes) (io.Closer, error) {
	path := filepath.Join(folder, "hosted", "knock.sock")
	// Of an earlier process: the supervisor starts one at a time.
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		listener.Close()
		return nil, err
	}
	go all.serveWaiters(listener)
	return listener, nil
}

// serveWaiters serves each waiter until the listener is closed.
func (a *planes) serveWaiters(listener net.Listener) {
	_ = acceptAll("the socket of waiters", listener.Accept, func(connection net.Conn) { go a.ask(connection) })
}

// ask serves one waiter: until it is answered, or gone.
func (a *planes) ask(connection net.Conn) {
	defer connection.Close()
	_ = connection.SetReadDeadline(time.Now().Add(askTime))
	line, err := bufio.NewReaderSize(connection, maxQuestion).ReadSlice('\n')
	if err != nil {
		return
	}
	_ = connection.SetReadDeadline(time.Time{})
	var asked question
	known := []string{untilClient, untilListening, untilClosed}
	if err := json.Unmarshal(line, &asked); err != nil || !slices.Contains(known, asked.Until) {
		tell(connection, verdict{Error: "a line must be like {\"uid\": \"…\", \"until\": \"client\"}"})
		return
	}
	if asked.Until == untilClosed {
		a.clients.cut(asked.UID)
		tell(connection, verdict{})
		return
	}
	who := &waiter{what: asked.Until, done: make(chan struct{})}
	if err := a.await(asked.UID, who); err != nil {
		tell(connection, verdict{Error: err.Error()})
		return
	}
	defer a.forget(asked.UID, who)
	left := make(chan struct{})
	go func() {
		defer close(left)
		// It sends nothing more: this ends when it is gone.
		_, _ = io.CopyN(io.Discard, connection, 1)
	}()
	select {
	case <-who.done:
		tell(connection, verdict{})
	case <-left:
	}
}

func tell(connection net.Conn, what verdict) {
	_ = connection.SetWriteDeadline(time.Now().Add(askTime))
	content, err := json.Marshal(what)
	if err == nil {
		_, _ = connection.Write(append(content, '\n'))
	}
}
