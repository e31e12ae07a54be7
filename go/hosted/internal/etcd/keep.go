package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// The times of the supervisor of local clusters.
const (
	lookEvery    = 10 * time.Second
	checkEvery   = 10 * time.Minute
	failedAgain  = time.Minute
	routineEvery = 24 * time.Hour
	saveEvery    = 6 * time.Hour
	// A request of the administrator.
	mostRequest = 4 << 10
	// A probe must not wait as long as an administrator.
	probePatience = 5 * time.Second
)

// A Keeper administers one etcd for as long as it runs, beside it in a Pod: it does what Run does once.
//
//	administrator ── TLS, certificates of an authority of their own ──► POST /admit, POST /remove
//	kubelet ── HTTP ──► GET /ready
//	keeper ── Unix socket, user root ──► etcd: relieve, save
type Keeper struct {
	client *clientv3.Client
	backup string
	// Removing and admitting one user at the same time would leave a part of it.
	users sync.Mutex
}

// grant names a user, and the prefix of its keys.
type grant struct {
	User   string `json:"user"`
	Prefix string `json:"prefix"`
}

// check rejects what would open the keys of others; an administrator may have been given a wrong name.
func (g grant) check() error {
	if g.User == "" || g.User == root || strings.ContainsAny(g.User, "/\x00") {
		return fmt.Errorf("%q is not a user of a control plane", g.User)
	}
	if !strings.HasPrefix(g.Prefix, "/") || path.Clean(g.Prefix) != g.Prefix || strings.Count(g.Prefix, "/") < 2 {
		return fmt.Errorf("%q is not a prefix of a control plane, as in /planes/a", g.Prefix)
	}
	return nil
}

// keep serves an administrator at one address and probes at another one, and keeps the etcd, until the context ends.
//
// Args: addresses may be "" for none; keys is a folder with ca.crt, tls.crt and tls.key; backup is the file for copies.
func keep(ctx context.Context, client *clientv3.Client, address, probes, keys, backup string) error {
	keeper := &Keeper{client: client, backup: backup}
	failed := make(chan error, 2)
	serve := func(address string, handler http.Handler, identity *tls.Config) (func() error, error) {
		listener, err := net.Listen("tcp", address)
		if err != nil {
			return nil, err
		}
		if identity != nil {
			listener = tls.NewListener(listener, identity)
		}
		server := &http.Server{
			Handler: handler, ReadHeaderTimeout: probePatience, IdleTimeout: time.Minute,
			// A probe of a port ends before its handshake.
			ErrorLog: log.New(io.Discard, "", 0),
		}
		go func() { failed <- server.Serve(listener) }()
		return server.Close, nil
	}
	if address != "" {
		identity, err := identityOf(keys)
		if err != nil {
			return err
		}
		end, err := serve(address, keeper.administrators(), identity)
		if err != nil {
			return err
		}
		defer end()
	}
	if probes != "" {
		end, err := serve(probes, keeper.probes(), nil)
		if err != nil {
			return err
		}
		defer end()
	}
	go keeper.everyFew(ctx)
	log.Print("ready")
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

// identityOf returns how the administrator is answered. The certificate is read at each connection, because it is renewed.
func identityOf(folder string) (*tls.Config, error) {
	read := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"))
		return &pair, err
	}
	if _, err := read(nil); err != nil {
		return nil, err
	}
	authority, err := os.ReadFile(filepath.Join(folder, "ca.crt"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authority) {
		return nil, errors.New("ca.crt has no certificate")
	}
	return &tls.Config{
		GetCertificate:         read,
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              pool,
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		NextProtos:             []string{"http/1.1"},
	}, nil
}

func (k *Keeper) administrators() http.Handler {
	mux := http.NewServeMux()
	for name, act := range map[string]func(context.Context, *clientv3.Client, string, string) error{
		"admit": admit, "remove": remove,
	} {
		mux.HandleFunc("POST /"+name, func(w http.ResponseWriter, r *http.Request) {
			var asked grant
			decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, mostRequest))
			decoder.DisallowUnknownFields()
			err := decoder.Decode(&asked)
			if err == nil {
				err = asked.check()
			}
			if err != nil {
				refuse(w, http.StatusBadRequest, err)
				return
			}
			limit := patience
			if name == "remove" {
				limit = longPatience
			}
			k.users.Lock()
			defer k.users.Unlock()
			err = within(r.Context(), limit, func(ctx context.Context) error { return act(ctx, k.client, asked.User, asked.Prefix) })
			if err != nil {
				log.Printf("%s %s: %v", name, asked.User, err)
				refuse(w, http.StatusServiceUnavailable, err)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			io.WriteString(w, "{}\n")
		})
	}
	return mux
}

// refuse answers as an API server does.
func refuse(w http.ResponseWriter, code int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{
		"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": err.Error(),
	})
}

func (k *Keeper) probes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) {
		err := within(r.Context(), probePatience, func(ctx context.Context) error {
			_, err := k.client.Status(ctx, k.client.Endpoints()[0])
			return err
		})
		if err != nil {
			// A probe has no identity: it learns nothing more.
			http.Error(w, "the etcd does not answer", http.StatusServiceUnavailable)
		}
	})
	return mux
}

// everyFew keeps the etcd from becoming full, and saves it.
func (k *Keeper) everyFew(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	// An alarm may be older than this process.
	var checked time.Time
	for {
		now := time.Now()
		isCheck := now.Sub(checked) >= checkEvery
		err := k.once(ctx, now, isCheck)
		if err != nil {
			log.Print("the etcd is not kept: ", err)
		}
		if isCheck {
			checked = now
			if err != nil {
				// Not at every tick: until the volume has room for a copy, each check writes one in vain.
				checked = now.Add(failedAgain - checkEvery)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// once does what is due. Only a check asks an etcd that is not half full, and saves it.
func (k *Keeper) once(ctx context.Context, now time.Time, isCheck bool) error {
	found, err := k.fullness(ctx)
	if err != nil {
		return err
	}
	if !isCheck && found.File <= found.Quota/2 {
		return nil
	}
	routine := filepath.Join(filepath.Dir(k.backup), "routine")
	isRoutine := isCheck && isDue(routine, now, routineEvery)
	err = within(ctx, longPatience, func(ctx context.Context) error {
		done, err := relieve(ctx, k.client, isRoutine)
		if err == nil && done != (Relief{}) {
			log.Printf("room was made: %+v", done)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("no room is made: %w", err)
	}
	if isRoutine {
		if err := touch(routine); err != nil {
			return err
		}
	}
	if !isCheck || !isDue(k.backup, now, saveEvery) {
		return nil
	}
	if err := enough(filepath.Dir(k.backup), found.File); err != nil {
		return fmt.Errorf("it is not saved: %w", err)
	}
	err = within(ctx, longPatience, func(ctx context.Context) error { return save(ctx, k.client, k.backup) })
	if err != nil {
		return fmt.Errorf("it is not saved: %w", err)
	}
	return nil
}

func (k *Keeper) fullness(ctx context.Context) (Fullness, error) {
	var found Fullness
	err := within(ctx, patience, func(ctx context.Context) error {
		var err error
		found, err = fullness(ctx, k.client)
		return err
	})
	return found, err
}

// enough keeps a copy from taking the room that the etcd itself needs on the same volume.
func enough(folder string, bytes int64) error {
	var found syscall.Statfs_t
	if err := syscall.Statfs(folder, &found); err != nil {
		return err
	}
	if free := int64(found.Bavail) * found.Bsize; free < 2*bytes {
		return fmt.Errorf("its volume has %d bytes free, and the copy needs twice %d: make the volume larger", free, bytes)
	}
	return nil
}

func isDue(file string, now time.Time, every time.Duration) bool {
	found, err := os.Stat(file)
	return err != nil || now.Sub(found.ModTime()) > every
}

func touch(file string) error {
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		return err
	}
	now := time.Now()
	return os.Chtimes(file, now, now)
}
