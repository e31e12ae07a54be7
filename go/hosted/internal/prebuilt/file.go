// Package prebuilt makes the database with which control planes begin: what each of them would write at its first start.
//
//	hosted prebuild ─► a control plane on an empty database ─► keys of some kinds, without uids and times ─► FILE
//	first start ─► FILE, if this very program has made it ─► each object gets a uid ─► the database
//
// FILE is a line of JSON, and a SQLite database. It has nothing that belongs to one control plane: only objects of listed
// kinds are in it, and none of them has a uid.
package prebuilt

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	utilversion "k8s.io/component-base/version"
)

const (
	format = 1
	// A line of JSON is shorter, and a database far smaller.
	largestHeader = 4 << 10
	largestFile   = 64 << 20
)

// header is the line before the database.
type header struct {
	Format     int    `json:"format"`
	Kubernetes string `json:"kubernetes"`
	// Program is the build id of the program that has made it.
	Program string `json:"program"`
	// SHA256 is of everything after the line.
	SHA256 string `json:"sha256"`
}

// write makes a file of a database, whole or not at all.
func write(file string, database []byte) error {
	program, err := program()
	if err != nil {
		return err
	}
	sum := sha256.Sum256(database)
	line, err := json.Marshal(header{
		Format: format, Kubernetes: utilversion.Get().GitVersion, Program: program, SHA256: hex.EncodeToString(sum[:])})
	if err != nil {
		return err
	}
	made, err := os.CreateTemp(filepath.Dir(file), ".prebuilt-*")
	if err != nil {
		return err
	}
	defer os.Remove(made.Name())
	_, err = made.Write(append(append(line, '\n'), database...))
	// It has no secrets, and processes of other users read it.
	if err := errors.Join(err, made.Chmod(0o644), made.Sync(), made.Close()); err != nil {
		return err
	}
	return os.Rename(made.Name(), file)
}

// read returns the database in a file that this very program has made.
func read(file string) ([]byte, error) {
	found, err := os.Stat(file)
	if err != nil {
		return nil, err
	}
	if !found.Mode().IsRegular() || found.Size() > largestFile {
		return nil, errors.New("it is damaged: it is larger than any, or no file")
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	line, database, isWhole := bytes.Cut(content, []byte("\n"))
	if !isWhole || len(line) > largestHeader {
		return nil, errors.New("it is damaged: it has no header")
	}
	var about header
	if err := json.Unmarshal(line, &about); err != nil {
		return nil, fmt.Errorf("it is damaged: its header: %w", err)
	}
	program, err := program()
	if err != nil {
		return nil, err
	}
	if about.Format != format || about.Program != program {
		return nil, fmt.Errorf("another program has made it, with Kubernetes %.40q", about.Kubernetes)
	}
	if sum := sha256.Sum256(database); about.SHA256 != hex.EncodeToString(sum[:]) {
		return nil, errors.New("it is damaged: its content has another sum")
	}
	return database, nil
}

// program returns the build id of this program, which Go derives from its content.
func program() (string, error) {
	executable, err := elf.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer executable.Close()
	section := executable.Section(".note.go.buildid")
	if section == nil {
		return "", errors.New("this program has no build id")
	}
	note, err := section.Data()
	if err != nil {
		return "", err
	}
	if len(note) == 0 {
		return "", errors.New("the build id of this program is empty")
	}
	sum := sha256.Sum256(note)
	return hex.EncodeToString(sum[:]), nil
}
