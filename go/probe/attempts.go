package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	eachTimeout = 1500 * time.Millisecond
	pause       = 250 * time.Millisecond
	routesFile  = "/proc/net/route"
	tokenFile   = "/var/run/secrets/kubernetes.io/serviceaccount/token"
)

// Attempt is one thing to try.
type Attempt struct {
	ID string `json:"id"`
	// Kind is one of hello (a probe answers with Word), tcp (a connection), name, reverse (DNS), api, api-token.
	Kind   string `json:"kind"`
	Target string `json:"target"`
	Word   string `json:"word,omitempty"`
	// Control says that it should work; these are tried first, until they do.
	Control bool `json:"control,omitempty"`
}

// Outcome is what came of it: whether it worked, and what was said.
type Outcome struct {
	OK   bool   `json:"ok"`
	Said string `json:"said,omitempty"`
}

// tryAll tries controls until they work, and then the others, of which the last try counts: what works only for a
// moment, before a policy is in force, is not what is asked.
func tryAll(attempts []Attempt, controls, attacks time.Duration) map[string]Outcome {
	found := map[string]Outcome{}
	collect := func(window time.Duration, isControl bool) {
		var lock sync.Mutex
		var all sync.WaitGroup
		end := time.Now().Add(window)
		for _, attempt := range attempts {
			if attempt.Control != isControl {
				continue
			}
			all.Go(func() {
				outcome := tryUntil(attempt, end)
				lock.Lock()
				defer lock.Unlock()
				found[attempt.ID] = outcome
			})
		}
		all.Wait()
	}
	collect(controls, true)
	collect(attacks, false)
	return found
}

func tryUntil(attempt Attempt, end time.Time) Outcome {
	for {
		outcome := try(attempt)
		if (outcome.OK && attempt.Control) || !time.Now().Add(pause).Before(end) {
			return outcome
		}
		time.Sleep(pause)
	}
}

func try(attempt Attempt) Outcome {
	ctx, cancel := context.WithTimeout(context.Background(), eachTimeout)
	defer cancel()
	said, err := attempted(ctx, attempt)
	if err != nil {
		return Outcome{Said: err.Error()}
	}
	return Outcome{OK: true, Said: said}
}

func attempted(ctx context.Context, attempt Attempt) (string, error) {
	switch attempt.Kind {
	case "hello":
		return hello(ctx, attempt.Target, attempt.Word)
	case "tcp":
		target, err := resolved(attempt.Target)
		if err != nil {
			return "", err
		}
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", target)
		if err != nil {
			return "", err
		}
		return "connected", connection.Close()
	case "name":
		found, err := net.DefaultResolver.LookupHost(ctx, attempt.Target)
		return strings.Join(found, " "), err
	case "reverse":
		found, err := net.DefaultResolver.LookupAddr(ctx, attempt.Target)
		return strings.Join(found, " "), err
	case "api", "api-token":
		return api(ctx, attempt)
	}
	return "", fmt.Errorf("does not know %q", attempt.Kind)
}

// resolved replaces the host "gateway" of a target by the address of the default route.
func resolved(target string) (string, error) {
	port, ok := strings.CutPrefix(target, "gateway:")
	if !ok {
		return target, nil
	}
	routes, err := os.ReadFile(routesFile)
	if err != nil {
		return "", err
	}
	gateway, err := defaultGateway(string(routes))
	return net.JoinHostPort(gateway, port), err
}

// defaultGateway returns the gateway in a table of routes as proc_net_route(5) shows it.
func defaultGateway(routes string) (string, error) {
	for line := range strings.Lines(routes) {
		// Interface, destination, gateway: addresses are hexadecimal, in the byte order of the machine.
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[1] != "00000000" || fields[2] == "00000000" {
			continue
		}
		number, err := strconv.ParseUint(fields[2], 16, 32)
		if err != nil {
			return "", err
		}
		address := make(net.IP, net.IPv4len)
		binary.NativeEndian.PutUint32(address, uint32(number))
		return address.String(), nil
	}
	return "", errors.New("the pod has no default gateway")
}

// hello connects and checks that the expected server answers.
func hello(ctx context.Context, target, word string) (string, error) {
	connection, err := new(net.Dialer).DialContext(ctx, "tcp", target)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	if deadline, ok := ctx.Deadline(); ok {
		if err := connection.SetDeadline(deadline); err != nil {
			return "", err
		}
	}
	line, err := bufio.NewReader(io.LimitReader(connection, 256)).ReadString('\n')
	if err != nil {
		return "", err
	}
	if line = strings.TrimSpace(line); line != word {
		return "", fmt.Errorf("%q answers", line)
	}
	return line, nil
}

// api asks the API server, where every pod is told that it is; the HTTP status is returned.
func api(ctx context.Context, attempt Attempt) (string, error) {
	host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
	if host == "" {
		return "", errors.New("the pod is not told where the API server is")
	}
	url := "https://" + net.JoinHostPort(host, port) + attempt.Target
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if attempt.Kind == "api-token" {
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return "", errors.New("the pod has no token")
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	// Whether something answers is asked, and with what status; nothing that it says is believed.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	answer, err := transport.RoundTrip(request)
	if err != nil {
		return "", err
	}
	return answer.Status, answer.Body.Close()
}

// serve sends a word to every client that connects.
func serve(word, port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	return answerAll(listener, func(connection net.Conn) {
		_ = connection.SetDeadline(time.Now().Add(eachTimeout))
		_, _ = fmt.Fprintln(connection, word)
	})
}

// answerAll answers every client by itself, and closes its connection.
func answerAll(listener net.Listener, answer func(net.Conn)) error {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer connection.Close()
			answer(connection)
		}()
	}
}
