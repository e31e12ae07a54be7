package main

import (
	"context"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"tenantry.dev/hosted/internal/datastore"
	"tenantry.dev/hosted/internal/plane"
	"tenantry.dev/hosted/internal/prebuilt"
	"tenantry.dev/hosted/internal/settings"
)

// A busy machine starts a control plane in a few times ten seconds.
const prebuildLimit = 4 * time.Minute

// throwaway returns the settings of a control plane in a new folder, which becomes the working directory. The caller
// removes it.
func throwaway() (settings.Settings, string, error) {
	folder, err := os.MkdirTemp("", "hosted-")
	if err != nil {
		return settings.Settings{}, "", err
	}
	if err := os.Chdir(folder); err != nil {
		return settings.Settings{}, folder, err
	}
	return settings.Settings{
		Datastore: settings.Datastore{File: "state.db", MaxBytes: 64 << 20},
		APIServer: []string{
			"--cert-dir=.", "--authorization-mode=RBAC", "--profiling=false", "--service-cluster-ip-range=10.96.0.0/16",
			"--service-account-issuer=https://hosted.example",
			"--service-account-key-file=key.pem", "--service-account-signing-key-file=key.pem",
		},
	}, folder, writeKey("key.pem")
}

// writePrebuilt runs a control plane in a folder of its own, and writes the file with which others begin.
//
// Args: controllers are the names of its controllers, separated by commas.
func writePrebuilt(file, controllers string) error {
	file, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	given, folder, err := throwaway()
	if folder != "" {
		defer os.RemoveAll(folder)
	}
	if err != nil {
		return err
	}
	const kubeconfig = "controllers.kubeconfig"
	given.APIServer = append(given.APIServer,
		"--watch-cache=false", "--advertise-address=192.0.2.1", "--endpoint-reconciler-type=none")
	given.Controllers = []string{
		"--kubeconfig=" + kubeconfig, "--controllers=" + controllers, "--use-service-account-credentials",
		"--secure-port=0", "--profiling=false", "--leader-elect=false", "--service-account-private-key-file=key.pem",
		"--kube-api-qps=200", "--kube-api-burst=400",
	}
	asked, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(asked, prebuildLimit)
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	store, err := datastore.Open(ctx, given.Datastore, fail)
	if err != nil {
		return err
	}
	defer store.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := plane.Bootstrap(ctx, given, listener, store.Client(), kubeconfig); err != nil {
		return err
	}
	return prebuilt.Make(ctx, store.Client(), store.Prefix(), folder, file)
}
