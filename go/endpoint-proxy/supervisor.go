package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log"
	"net"
	"path/filepath"
	"syscall"
	"time"
)

// phase is the phase of a component, as the supervisor reports it.
type phase string

const (
	stopped phase = "Stopped"
	ready   phase = "Ready"
)

// component is what the supervisor reports of a component.
type component struct {
	Name  string `json:"name"`
	Phase phase  `json:"phase"`
	Ticks uint64 `json:"startTicks"`
	// Where it is reached, as HOST:PORT.
	Address string `json:"-"`
}

type reply struct {
	State *struct {
		Components []component `json:"components"`
	} `json:"state"`
}

// lineLimit bounds a line of the supervisor, which has the state of all components.
const lineLimit = 16 << 20

// pause is how long to wait before a supervisor is asked again that has ended the watch.
const pause = 200 * time.Millisecond

// follow calls changed with the state of all components now, and after each change, until the context ends. It returns
// earlier only if the supervisor is gone: it has started this process.
func follow(ctx context.Context, folder string, changed func([]component)) error {
	for {
		err := watch(ctx, filepath.Join(folder, "control.sock"), changed)
		if ctx.Err() != nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, fs.ErrNotExist) {
			return err
		}
		// The supervisor ends the watch of a reader that is slow.
		log.Print("the watch of the supervisor ended, and begins again: ", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

func watch(ctx context.Context, socket string, changed func([]component)) error {
	connection, err := net.Dial("unix", socket)
	if err != nil {
		return err
	}
	defer connection.Close()
	defer context.AfterFunc(ctx, func() { connection.Close() })()
	if _, err := connection.Write([]byte(`{"verb":"watch"}` + "\n")); err != nil {
		return err
	}
	lines := bufio.NewScanner(connection)
	lines.Buffer(make([]byte, 0, 64<<10), lineLimit)
	for lines.Scan() {
		var got reply
		if err := json.Unmarshal(lines.Bytes(), &got); err != nil {
			return err
		}
		if got.State != nil {
			changed(got.State.Components)
		}
	}
	return lines.Err()
}
