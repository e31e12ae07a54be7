package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

const (
	mebibyte   = 1 << 20
	smallFile  = 4096
	mostSmall  = 64
	networking = 64 << 10
)

// Measure is what one pod of `tenantry bench runtimes` is to measure.
type Measure struct {
	// Seconds is how long each part takes, apart from the disk's.
	Seconds float64 `json:"seconds"`
	// Folder is where files are written; "" for no figures of files.
	Folder string `json:"folder"`
	// Mebibytes is the size of the large file.
	Mebibytes int `json:"mebibytes"`
	// Source is the address of a pod that runs `stream`; "" for no figure of the network.
	Source string `json:"source"`
}

// Figures are per second, of one thread; what was not measured is absent.
type Figures struct {
	HashMebibytes    float64 `json:"hashMebibytes"`
	SystemCalls      float64 `json:"systemCalls"`
	FileOperations   float64 `json:"fileOperations,omitempty"`
	WriteMebibytes   float64 `json:"writeMebibytes,omitempty"`
	ReadMebibytes    float64 `json:"readMebibytes,omitempty"`
	NetworkMebibytes float64 `json:"networkMebibytes,omitempty"`
}

// measure runs the parts one after the other.
func measure(wanted Measure) (Figures, error) {
	if wanted.Seconds <= 0 {
		return Figures{}, errors.New("`seconds` must be more than 0")
	}
	window := time.Duration(wanted.Seconds * float64(time.Second))
	figures := Figures{HashMebibytes: hashRate(window), SystemCalls: rate(window, func() { syscall.Getppid() })}
	if wanted.Folder != "" {
		if err := measureFiles(&figures, wanted, window); err != nil {
			return Figures{}, fmt.Errorf("files in %s: %w", wanted.Folder, err)
		}
	}
	if wanted.Source != "" {
		received, err := receive(wanted.Source, window)
		if err != nil {
			return Figures{}, fmt.Errorf("network: %w", err)
		}
		figures.NetworkMebibytes = received
	}
	return figures, nil
}

// rate returns how often a second a function ends, of one thread.
func rate(window time.Duration, once func()) float64 {
	const batch = 64 // reading the clock is a system call in some sandboxes
	count := 0
	began := time.Now()
	for time.Since(began) < window {
		for range batch {
			once()
		}
		count += batch
	}
	return float64(count) / time.Since(began).Seconds()
}

func hashRate(window time.Duration) float64 {
	block := make([]byte, mebibyte/64)
	return rate(window, func() { sha256.Sum256(block) }) / 64
}

func measureFiles(figures *Figures, wanted Measure, window time.Duration) error {
	small := make([]byte, smallFile)
	number := 0
	var failed error
	figures.FileOperations = rate(window, func() {
		name := filepath.Join(wanted.Folder, fmt.Sprintf("small-%d", number%mostSmall))
		number++
		if err := os.WriteFile(name, small, 0o600); err != nil && failed == nil {
			failed = err
		}
	})
	if failed != nil {
		return failed
	}
	large := filepath.Join(wanted.Folder, "large")
	began := time.Now()
	if err := writeLarge(large, wanted.Mebibytes); err != nil {
		return err
	}
	figures.WriteMebibytes = float64(wanted.Mebibytes) / time.Since(began).Seconds()
	began = time.Now()
	if err := readLarge(large); err != nil {
		return err
	}
	figures.ReadMebibytes = float64(wanted.Mebibytes) / time.Since(began).Seconds()
	return os.Remove(large)
}

// writeLarge returns when the file is on the disk.
func writeLarge(name string, mebibytes int) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, mebibyte)
	for number := range mebibytes {
		block[0] = byte(number)
		if _, err := file.Write(block); err != nil {
			return err
		}
	}
	return file.Sync()
}

func readLarge(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	block := make([]byte, mebibyte)
	for {
		if _, err := file.Read(block); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// receive returns how many MiB a second a pod sends.
func receive(source string, window time.Duration) (float64, error) {
	connection, err := net.DialTimeout("tcp", source, eachTimeout)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	block := make([]byte, networking)
	received := 0
	began := time.Now()
	if err := connection.SetDeadline(began.Add(window)); err != nil {
		return 0, err
	}
	for {
		count, err := connection.Read(block)
		received += count
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return float64(received) / mebibyte / time.Since(began).Seconds(), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// stream sends zeros to every client as fast as it reads.
func stream(port string) error {
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	return streamTo(listener)
}

func streamTo(listener net.Listener) error {
	return answerAll(listener, func(connection net.Conn) {
		block := make([]byte, networking)
		for {
			if _, err := connection.Write(block); err != nil {
				return
			}
		}
	})
}

// burn keeps all processors and the kernel busy for some seconds, as a neighbour that does not care does.
func burn(seconds float64) {
	window := time.Duration(seconds * float64(time.Second))
	done := make(chan struct{})
	block := make([]byte, mebibyte)
	for range runtime.NumCPU() {
		go func() {
			rate(window, func() {
				sha256.Sum256(block[:smallFile])
				syscall.Getppid()
			})
			done <- struct{}{}
		}()
	}
	for range runtime.NumCPU() {
		<-done
	}
}

func measureJSON(text string) error {
	var wanted Measure
	if err := json.Unmarshal([]byte(text), &wanted); err != nil {
		return err
	}
	figures, err := measure(wanted)
	if err != nil {
		return err
	}
	return tell(figures)
}
