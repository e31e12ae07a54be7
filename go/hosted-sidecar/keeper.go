package main

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	// mostBytes is the most that a snapshot has.
	mostBytes = 5 << 30
	mostFiles = 1000
	// mostKeeping is the most connections to the keeper at one time: the operator needs one.
	mostKeeping = 16
	mostError   = 1000
	checksum    = "X-Sha256"
	unfinished  = ".part"
)

// A file of a snapshot, or the one that is on its way. No name begins with a dot.
var fileName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.-]{0,127}$`)

// A keeper has snapshots in a folder of a volume, and gives them to the operator over HTTP:
//
//	GET    /files                                      names and sizes
//	GET    /files/NAME      PUT    /files/NAME         content; X-Sha256 has its checksum
//	DELETE /files/NAME      POST   /files/NAME/name/TO
//	POST   /files/NAME/take|verify|restore|replace     commands of the control plane, which write a header as JSON
//
// `replace` is a restore of a snapshot that may be of another control plane. The operator has the certificate of this
// Pod alone; paths are names of files, and no link leads out of the volume.
type keeper struct {
	// The volume, and the folder in it, which a process in the same volume may have replaced.
	volume, folder string
	// The program and the settings of the control plane; "" for a volume without one.
	program, settings string
	// The file of the datastore, whose size a new snapshot has at most; relative to the volume.
	database string
	// How many bytes of the volume snapshots leave free.
	reserve uint64
	busy    sync.Mutex
	open    atomic.Int64
	last    atomic.Int64
}

// serve answers the operator until the listener fails.
func (k *keeper) serve(listener net.Listener, identity *tls.Config) error {
	server := &http.Server{
		Handler:           k,
		ReadHeaderTimeout: introduction,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    8 << 10,
		ErrorLog:          log.Default(),
	}
	own := identity.Clone()
	own.NextProtos = []string{"http/1.1"}
	return server.Serve(tls.NewListener(&fewer{Listener: listener, slots: make(chan struct{}, mostKeeping)}, own))
}

// idle returns once no request was open for a time, which begins with the call.
func (k *keeper) idle(ctx context.Context, after time.Duration) {
	// Not in serve, which may run later: the keeper would end at once.
	k.last.Store(time.Now().UnixNano())
	for {
		rest := after - time.Since(time.Unix(0, k.last.Load()))
		if k.open.Load() > 0 {
			rest = after
		} else if rest <= 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(rest):
		}
	}
}

func (k *keeper) ServeHTTP(to http.ResponseWriter, asked *http.Request) {
	k.open.Add(1)
	defer func() {
		k.last.Store(time.Now().UnixNano())
		k.open.Add(-1)
	}()
	k.busy.Lock()
	defer k.busy.Unlock()
	if err := k.answer(to, asked); err != nil {
		status := http.StatusUnprocessableEntity
		if errors.Is(err, fs.ErrNotExist) {
			status = http.StatusNotFound
		}
		http.Error(to, errorText(err), status)
	}
}

func (k *keeper) answer(to http.ResponseWriter, asked *http.Request) error {
	root, err := k.opened()
	if err != nil {
		return err
	}
	defer root.Close()
	parts := strings.Split(strings.TrimPrefix(asked.URL.Path, "/files"), "/")
	if len(parts) == 1 && parts[0] == "" && asked.Method == http.MethodGet {
		return list(root, to)
	}
	if len(parts) < 2 || parts[0] != "" || !fileName.MatchString(parts[1]) {
		return errors.New("this is not the name of a file")
	}
	name, rest := parts[1], parts[2:]
	switch {
	case len(rest) == 0 && asked.Method == http.MethodGet:
		return give(root, name, to)
	case len(rest) == 0 && asked.Method == http.MethodPut:
		return k.receive(root, name, asked)
	case len(rest) == 0 && asked.Method == http.MethodDelete:
		if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	case len(rest) == 2 && asked.Method == http.MethodPost && rest[0] == "name" && fileName.MatchString(rest[1]):
		return root.Rename(name, rest[1])
	case len(rest) == 1 && asked.Method == http.MethodPost:
		return k.command(asked.Context(), root, name, rest[0], to)
	}
	return errors.New("this is not a request to a keeper of snapshots")
}

// opened returns the folder, which it makes. The volume cannot be replaced, and no link in it leads out of it.
func (k *keeper) opened() (*os.Root, error) {
	volume, err := os.OpenRoot(k.volume)
	if err != nil {
		return nil, err
	}
	defer volume.Close()
	if err := volume.Mkdir(k.folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return volume.OpenRoot(k.folder)
}

type kept struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

func list(root *os.Root, to http.ResponseWriter) error {
	folder, err := root.Open(".")
	if err != nil {
		return err
	}
	defer folder.Close()
	entries, err := folder.ReadDir(mostFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	found := []kept{}
	for _, each := range entries {
		if !each.Type().IsRegular() || !fileName.MatchString(each.Name()) {
			continue
		}
		if about, err := each.Info(); err == nil {
			found = append(found, kept{each.Name(), about.Size()})
		}
	}
	return json.NewEncoder(to).Encode(found)
}

// regular opens a file for reading: neither a link nor a pipe, on which opening would wait.
func regular(root *os.Root, name string) (*os.File, int64, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	about, err := file.Stat()
	if err == nil && !about.Mode().IsRegular() {
		err = errors.New("it is not a file")
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, about.Size(), nil
}

func give(root *os.Root, name string, to http.ResponseWriter) error {
	file, size, err := regular(root, name)
	if err != nil {
		return err
	}
	defer file.Close()
	found := sha256.New()
	if _, err := io.Copy(found, io.LimitReader(file, size)); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	to.Header().Set("Content-Length", strconv.FormatInt(size, 10))
	to.Header().Set("Content-Type", "application/octet-stream")
	to.Header().Set(checksum, hex.EncodeToString(found.Sum(nil)))
	// The operator learns of an error by the length.
	_, err = io.Copy(to, io.LimitReader(file, size))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// receive makes a file, which is there only as a whole.
func (k *keeper) receive(root *os.Root, name string, asked *http.Request) error {
	if asked.ContentLength < 0 || asked.ContentLength > mostBytes {
		return errors.New("a snapshot must have a length of at most 5 GiB")
	}
	if err := k.room(uint64(asked.ContentLength)); err != nil {
		return err
	}
	part := name + unfinished
	if err := root.Remove(part); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := root.OpenFile(part, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	found := sha256.New()
	_, err = io.Copy(io.MultiWriter(file, found), io.LimitReader(asked.Body, asked.ContentLength))
	if err == nil && hex.EncodeToString(found.Sum(nil)) != asked.Header.Get(checksum) {
		err = errors.New("the snapshot was changed on its way: its checksum differs")
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = root.Rename(part, name)
	}
	if err != nil {
		root.Remove(part)
	}
	return err
}

// room returns an error if the volume has less room than some bytes and the reserve.
func (k *keeper) room(bytes uint64) error {
	var about syscall.Statfs_t
	if err := syscall.Statfs(k.volume, &about); err != nil {
		return err
	}
	if about.Bavail*uint64(about.Bsize) < bytes+k.reserve {
		return fmt.Errorf("the volume has no room for another snapshot of up to %d MiB: keep fewer of them", bytes>>20)
	}
	return nil
}

// command runs the program of the control plane, whose output is the answer.
func (k *keeper) command(ctx context.Context, root *os.Root, name, verb string, to http.ResponseWriter) error {
	file := filepath.Join(k.volume, k.folder, name)
	var arguments []string
	switch {
	case k.program == "":
	case verb == "verify":
		arguments = []string{"verify", file}
	case k.settings == "":
	case verb == "take":
		var size uint64
		if about, err := os.Stat(filepath.Join(k.volume, k.database)); err == nil {
			size = uint64(about.Size())
		}
		if err := k.room(size); err != nil {
			return err
		}
		arguments = []string{"snapshot", k.settings, file}
	case verb == "restore":
		arguments = []string{"restore", k.settings, file}
	case verb == "replace":
		arguments = []string{"restore", k.settings, file, "foreign"}
	}
	if arguments == nil {
		return errors.New("this is not a request to a keeper of snapshots")
	}
	if verb != "take" {
		opened, _, err := regular(root, name)
		if err != nil {
			return err
		}
		opened.Close()
	}
	var out, problem strings.Builder
	child := exec.CommandContext(ctx, k.program, arguments...)
	child.Stdout, child.Stderr = &out, &problem
	if err := child.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(problem.String()), "\n")
		if last := strings.TrimPrefix(lines[len(lines)-1], "hosted: "); last != "" {
			return errors.New(last)
		}
		return err
	}
	to.Header().Set("Content-Type", "application/json")
	_, err := io.WriteString(to, out.String())
	return err
}

func errorText(err error) string {
	text := strings.ToValidUTF8(err.Error(), "?")
	if len(text) > mostError {
		text = strings.ToValidUTF8(text[:mostError], "")
	}
	return text
}

// fewer accepts connections while there are few.
type fewer struct {
	net.Listener
	slots chan struct{}
}

func (f *fewer) Accept() (net.Conn, error) {
	for {
		conn, err := f.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case f.slots <- struct{}{}:
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { <-f.slots })}, nil
		default:
			conn.Close()
		}
	}
}

type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	c.leave()
	return c.Conn.Close()
}
