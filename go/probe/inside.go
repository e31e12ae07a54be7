package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Inside is what a container sees of itself and of its node.
type Inside struct {
	UID        int    `json:"uid"`
	CapBnd     string `json:"capBnd"`
	CapEff     string `json:"capEff"`
	NoNewPrivs string `json:"noNewPrivs"`
	Seccomp    string `json:"seccomp"`
	// Version is /proc/version, BootID the kernel's own number of its start.
	Version string `json:"version"`
	BootID  string `json:"bootId"`
	// Messages are the first bytes of the kernel's log, "" where they may not be read.
	Messages string `json:"messages"`
	// Strangers are processes that are not of this container.
	Strangers int `json:"strangers"`
	// Opened is what of the node could be opened.
	Opened []string `json:"opened"`
	// Raw are the kinds of sockets that could be opened with which packets are forged.
	Raw         []string `json:"raw"`
	MemoryLimit string   `json:"memoryLimit"`
}

func lookInside() Inside {
	status := statusOf("/proc/self/status")
	return Inside{
		UID:         os.Getuid(),
		CapBnd:      status["CapBnd"],
		CapEff:      status["CapEff"],
		NoNewPrivs:  status["NoNewPrivs"],
		Seccomp:     status["Seccomp"],
		Version:     textOf("/proc/version"),
		BootID:      textOf("/proc/sys/kernel/random/boot_id"),
		Messages:    messages(),
		Strangers:   strangers(),
		Opened:      opened(),
		Raw:         rawSockets(),
		MemoryLimit: textOf("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"),
	}
}

// textOf returns the text of the first of several files that can be read.
func textOf(files ...string) string {
	for _, file := range files {
		if data, err := os.ReadFile(file); err == nil {
			return strings.TrimSpace(string(data))
		}
	}
	return ""
}

func statusOf(file string) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(textOf(file)) {
		if key, value, ok := strings.Cut(line, ":"); ok {
			found[key] = strings.TrimSpace(value)
		}
	}
	return found
}

func messages() string {
	const readAll = 3
	buffer := make([]byte, 4096)
	count, err := syscall.Klogctl(readAll, buffer)
	if err != nil {
		return ""
	}
	return strings.ToValidUTF8(string(buffer[:count]), "?")
}

// strangers counts processes that neither are this one nor its ancestors in the container, such as a program that runs
// as the first process of all.
func strangers() int {
	entries, _ := os.ReadDir("/proc")
	count := 0
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err == nil && pid != os.Getpid() && pid != os.Getppid() {
			count++
		}
	}
	return count
}

// opened tries to open what belongs to the node. Nothing is written, and of what can be read one byte is.
func opened() []string {
	found := []string{}
	for _, file := range []string{"/dev/mem", "/dev/kmsg", "/dev/kvm", "/proc/kcore", "/run/containerd/containerd.sock",
		"/var/run/docker.sock", "/proc/1/root/etc/kubernetes", "/var/lib/kubelet/pki"} {
		if isReadable(file) {
			found = append(found, file)
		}
	}
	for _, file := range []string{"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/sys/kernel/uevent_helper",
		"/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/release_agent"} {
		if handle, err := os.OpenFile(file, os.O_WRONLY, 0); err == nil {
			_ = handle.Close()
			found = append(found, file+" for writing")
		}
	}
	devices, _ := filepath.Glob("/dev/*")
	for _, device := range devices {
		about, err := os.Stat(device)
		if err == nil && about.Mode()&fs.ModeDevice != 0 && about.Mode()&fs.ModeCharDevice == 0 && isReadable(device) {
			found = append(found, device)
		}
	}
	return append(found, madeDevices()...)
}

func isReadable(file string) bool {
	about, err := os.Stat(file)
	if err != nil {
		return false
	}
	if about.Mode()&fs.ModeSocket != 0 {
		return true
	}
	handle, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer handle.Close()
	if about.IsDir() {
		_, err = handle.Readdirnames(1)
		return err == nil
	}
	// A file that is masked can be opened, and is empty.
	count, err := handle.Read(make([]byte, 1))
	return count > 0 || (about.Mode()&fs.ModeCharDevice != 0 && !errors.Is(err, syscall.EPERM) && file == "/dev/kvm")
}

// madeDevices creates device nodes of disks, which needs CAP_MKNOD, and tries to open them, which the node prevents.
func madeDevices() []string {
	found := []string{}
	folder, err := os.MkdirTemp("", "probe")
	if err != nil {
		return found
	}
	defer os.RemoveAll(folder)
	for _, major := range []int{8, 252, 253, 254, 259} {
		file := filepath.Join(folder, strconv.Itoa(major))
		if syscall.Mknod(file, syscall.S_IFBLK|0o600, major<<8) != nil {
			continue
		}
		handle, err := os.Open(file)
		if err == nil {
			_ = handle.Close()
		}
		// Where there is no such disk another error than a refusal says that it would have been opened.
		if !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES) {
			found = append(found, fmt.Sprintf("disks of number %d by a device of its own", major))
		}
	}
	return found
}

func rawSockets() []string {
	found := []string{}
	const allProtocols = 0x0300 // ETH_P_ALL, as the network writes it
	for _, each := range []struct {
		name             string
		family, protocol int
	}{{"AF_INET", syscall.AF_INET, syscall.IPPROTO_RAW}, {"AF_PACKET", syscall.AF_PACKET, allProtocols}} {
		descriptor, err := syscall.Socket(each.family, syscall.SOCK_RAW, each.protocol)
		if err == nil {
			_ = syscall.Close(descriptor)
			found = append(found, each.name)
		}
	}
	return found
}
