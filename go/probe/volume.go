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

// Volume is the contents of a volume before the first write.
type Volume struct {
	// Files are the first of its files, and Count is their number.
	Files []string `json:"files"`
	Count int      `json:"count"`
	// Found is whether one of them holds the word of another pod.
	Found bool `json:"found"`
	// Unread is why the volume could not be read, "" if it could.
	Unread string `json:"unread"`
}

// leave writes a word into a volume, for the next pod that gets it.
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

// lookThrough returns the contents of a volume, without what every new file system has (lost+found).
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
