// Command probe is what the pods of `tenantry audit --probe` and `tenantry bench runtimes` run: it answers others, tries
// or measures what it was given, and prints the outcome as one line of JSON. It changes nothing but the volume that it is
// given.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// attackWindow is how long what must not work is tried: a policy takes a moment to be in force, and so does a Service.
const attackWindow = 3 * time.Second

// controlWindow is how long what must work is tried.
const controlWindow = 25 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) < 2 {
		return errors.New("needs `serve WORD PORT`, `try JSON`, `eat MIB`, `leave FOLDER WORD`, `find FOLDER WORD`," +
			" `measure JSON`, `stream PORT` or `burn SECONDS`")
	}
	switch arguments[0] {
	case "serve", "leave", "find":
		if len(arguments) != 3 {
			return fmt.Errorf("needs two words after `%s`", arguments[0])
		}
		return runWith(arguments[0], arguments[1], arguments[2])
	case "try":
		var attempts []Attempt
		if err := json.Unmarshal([]byte(arguments[1]), &attempts); err != nil {
			return err
		}
		return tell(Report{Attempts: tryAll(attempts, controlWindow, attackWindow), Inside: lookInside()})
	case "eat":
		mib, err := strconv.Atoi(arguments[1])
		if err != nil {
			return err
		}
		return eat(mib)
	case "measure":
		return measureJSON(arguments[1])
	case "stream":
		return stream(arguments[1])
	case "burn":
		seconds, err := strconv.ParseFloat(arguments[1], 64)
		if err != nil {
			return err
		}
		burn(seconds)
		return nil
	}
	return fmt.Errorf("does not know %q", arguments[0])
}

func runWith(verb, one, two string) error {
	switch verb {
	case "leave":
		return leave(one, two)
	case "find":
		return tell(lookThrough(one, two))
	}
	return serve(one, two)
}

// Report is what a pod says.
type Report struct {
	Attempts map[string]Outcome `json:"attempts"`
	Inside   Inside             `json:"inside"`
}

func tell(value any) error {
	return json.NewEncoder(os.Stdout).Encode(value)
}

// eat takes memory and keeps it until all is taken; where there is a limit it does not come to the end.
func eat(mib int) error {
	if err := tell(map[string]int{"wants": mib}); err != nil {
		return err
	}
	for taken := range mib {
		page, err := syscall.Mmap(-1, 0, 1<<20, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
		if err != nil {
			return fmt.Errorf("after %d MiB: %w", taken, err)
		}
		for at := 0; at < len(page); at += 4096 {
			page[at] = 1
		}
	}
	return tell(map[string]int{"ate": mib})
}
