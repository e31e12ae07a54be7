// Command node-gvisor is gVisor's shim for containerd, like gvisor.dev/gvisor/shim, with one difference: it also starts on
// machines without CAP_SYS_RESOURCE, on which gVisor's own shim fails because it may not lower its OOM score.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"

	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/containerd/v2/pkg/shim"
	"github.com/containerd/containerd/v2/pkg/sys"
	"golang.org/x/sys/unix"
	runsc "gvisor.dev/gvisor/pkg/shim/v1"
	_ "gvisor.dev/gvisor/pkg/shim/v1/plugin" // registers the task service
)

const (
	// oomScore keeps the shim from being the first to be killed; gVisor's own value.
	oomScore    = -999
	addressFile = "address"
)

// manager is gVisor's, but for the start.
type manager struct{ shim.Manager }

// Start starts the shim of one container in the folder that containerd has made for it, without grouping.
//
// What `shim start` prints is parsed by containerd, stderr too: nothing may be logged here.
func (m manager) Start(ctx context.Context, id string, opts shim.StartOpts) (_ shim.BootstrapParams, err error) {
	none := shim.BootstrapParams{}
	address, err := shim.SocketAddress(ctx, opts.Address, id, opts.Debug)
	if err != nil {
		return none, err
	}
	socket, err := listen(address)
	if err != nil {
		return none, err
	}
	defer func() {
		if err != nil {
			_ = socket.Close()
			_ = shim.RemoveSocket(address)
		}
	}()
	if err := os.WriteFile(addressFile, []byte(address), 0o644); err != nil {
		return none, err
	}
	file, err := socket.File()
	if err != nil {
		return none, err
	}
	command, err := again(ctx, id, opts)
	if err != nil {
		return none, err
	}
	command.ExtraFiles = append(command.ExtraFiles, file)
	if err := command.Start(); err != nil {
		return none, err
	}
	defer func() {
		if err != nil {
			_ = command.Process.Kill()
		}
	}()
	go func() { _ = command.Wait() }()
	if err := shim.WritePidFile("shim.pid", command.Process.Pid); err != nil {
		return none, err
	}
	if err := sys.SetOOMScore(command.Process.Pid, oomScore); err != nil && !errors.Is(err, fs.ErrPermission) {
		return none, fmt.Errorf("set the OOM score of the shim: %w", err)
	}
	return shim.BootstrapParams{Version: 2, Address: address, Protocol: "ttrpc"}, nil
}

// listen makes the shim's socket, in the place of one that a shim has left behind.
func listen(address string) (*net.UnixListener, error) {
	socket, err := shim.NewSocket(address)
	if err == nil || !shim.SocketEaddrinuse(err) {
		return socket, err
	}
	if err := shim.RemoveSocket(address); err != nil {
		return nil, fmt.Errorf("remove the socket of an earlier shim: %w", err)
	}
	return shim.NewSocket(address)
}

// again returns this program as the shim that stays.
func again(ctx context.Context, id string, opts shim.StartOpts) (*exec.Cmd, error) {
	namespace, err := namespaces.NamespaceRequired(ctx)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arguments := []string{"-namespace", namespace, "-address", opts.Address, "-id", id}
	if opts.Debug {
		arguments = append(arguments, "-debug")
	}
	command := exec.Command(self, arguments...)
	command.Env = append(os.Environ(), "GOMAXPROCS=2")
	command.SysProcAttr = &unix.SysProcAttr{Setpgid: true}
	return command, nil
}

func main() {
	shim.Run(context.Background(), manager{runsc.NewShimManager("io.containerd.runsc.v1")})
}
