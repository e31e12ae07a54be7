package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	mostFiles = 10_000
	mostNamed = 5
	mostBytes = 1 << 20
)

// Volume is what was in a volume before anybody wrote to it.
type Volume struct {
	// Files are the first of those that it has, and Count is how many.
	Files []string `json:"files"`
	Count int      `json:"count"`
	// Found says that the word of somebody else is in one of them.
	Found bool `json:"found"`
	// Unread is why it could not be looked through, "" where it could.
	Unread string `json:"unread"`
}

// leave writes a word into a volume, for who comes after.
func leave(folder, word string) error {
	file, err := os.Create(filepath.Join(folder, word))
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.WriteString(word + "\n"); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	return tell(map[string]string{"left": word})
}

// lookThrough returns what is in a volume. What every new file system has (lost+found) is nobody's.
func lookThrough(folder, word string) Volume {
	volume := Volume{Files: []string{}}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "lost+found" {
				return fs.SkipDir
			}
			return nil
		}
		if volume.Count++; volume.Count > mostFiles {
			return fs.SkipAll
		}
		name, _ := filepath.Rel(folder, path)
		if len(volume.Files) < mostNamed {
			volume.Files = append(volume.Files, name)
		}
		about, err := entry.Info()
		if err != nil || !about.Mode().IsRegular() || about.Size() > mostBytes {
			return nil
		}
		if data, err := os.ReadFile(path); err == nil && bytes.Contains(data, []byte(word)) {
			volume.Found = true
		}
		return nil
	})
	if err != nil {
		volume.Unread = err.Error()
	}
	return volume
}
