// whereami reports the node and the kernel of its container: as a web page, and as a command.
//
//	whereami         serves the page on port 8080
//	whereami here    prints it
//	whereami dmesg   prints the kernel's messages: gVisor shows its own, another kernel shows containers none
package main

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
)

// readAll is what syslog(2) calls SYSLOG_ACTION_READ_ALL.
const readAll = 3

func main() {
	if err := run(strings.Join(os.Args[1:], " ")); err != nil {
		fmt.Fprintln(os.Stderr, "whereami:", err)
		os.Exit(1)
	}
}

func run(verb string) error {
	switch verb {
	case "":
		return http.ListenAndServe(":8080", http.HandlerFunc(serve))
	case "here":
		page, err := here()
		fmt.Print(page)
		return err
	case "dmesg":
		messages := make([]byte, 1<<16)
		length, err := syscall.Klogctl(readAll, messages)
		if err != nil {
			return fmt.Errorf("this kernel does not show its messages: %w", err)
		}
		fmt.Print(string(messages[:length]))
		return nil
	}
	return fmt.Errorf("%q is neither here nor dmesg", verb)
}

func here() (string, error) {
	kernel, err := os.ReadFile("/proc/version")
	return fmt.Sprintf("node %s, %s", os.Getenv("NODE"), kernel), err
}

func serve(answer http.ResponseWriter, _ *http.Request) {
	page, err := here()
	if err != nil {
		http.Error(answer, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprint(answer, page)
}
