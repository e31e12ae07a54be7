// Package snapshot copies all keys of a control plane at one revision into a file, and back.
//
//	magic ─► zstd( header ─► entries in the order of their keys ─► end, SHA-256 of everything before it )
//
// All lengths are four bytes, big endian, and are checked before memory is allocated for what they announce. A file that
// is cut short has no end, and one that was changed has another sum.
package snapshot

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"
	"k8s.io/apimachinery/pkg/util/version"
)

// Format is the format that this program writes; it reads no later one.
const Format = 1

const (
	magic         = "hosted-snapshot\n"
	largestHeader = 64 << 10
	largestKey    = 8 << 10
	// A request of an API server to its datastore has at most 2 MiB.
	largestValue = 2 << 20
	// A revision beyond it leaves too few for the future.
	largestRevision = 1 << 60
	window          = 1 << 20
)

const (
	kindEnd byte = iota
	kindKept
	// A key that its datastore deletes after a time.
	kindLeased
)

// Header describes a snapshot.
type Header struct {
	Format     int    `json:"format"`
	Kubernetes string `json:"kubernetes"`
	// UID is that of the control plane that the snapshot was taken of.
	UID      string    `json:"uid"`
	Revision int64     `json:"revision"`
	Count    int64     `json:"count"`
	Time     time.Time `json:"time"`
}

// Check returns why a control plane of a version of Kubernetes cannot use the snapshot, nil if it can.
func (h Header) Check(kubernetes string) error {
	if h.Format > Format {
		return fmt.Errorf("the snapshot has format %d, and this program reads formats up to %d: use a later one", h.Format, Format)
	}
	if h.Format < 1 || h.Revision < 1 || h.Revision > largestRevision || h.Count < 0 {
		return damaged(errors.New("its header has values that no snapshot has"))
	}
	theirs, err := version.ParseGeneric(h.Kubernetes)
	if err != nil {
		return damaged(fmt.Errorf("version of Kubernetes: %w", err))
	}
	ours, err := version.ParseGeneric(kubernetes)
	if err != nil {
		return fmt.Errorf("version of this program: %w", err)
	}
	if theirs.Major() > ours.Major() || (theirs.Major() == ours.Major() && theirs.Minor() > ours.Minor()) {
		return fmt.Errorf(
			"the snapshot is of Kubernetes %s, and %s does not read its objects: restore it into a control plane of %s or a later version",
			h.Kubernetes, kubernetes, h.Kubernetes)
	}
	return nil
}

// Entry is a key, without the prefix of its datastore.
type Entry struct {
	Key    string
	Value  []byte
	Leased bool
}

// ErrForeign says that a file has never been a snapshot.
var ErrForeign = errors.New("the file is not a snapshot of a control plane")

func damaged(cause error) error {
	if errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) {
		return errors.New("the snapshot is cut short: take or copy it again")
	}
	return fmt.Errorf("the snapshot is damaged: %w", cause)
}

// writer writes a snapshot; without end, it is not one.
type writer struct {
	packed *zstd.Encoder
	sum    hash.Hash
	all    io.Writer
	left   int64
	last   string
}

func newWriter(to io.Writer, header Header) (*writer, error) {
	if _, err := io.WriteString(to, magic); err != nil {
		return nil, err
	}
	packed, err := zstd.NewWriter(to, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(window))
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	made := &writer{packed: packed, sum: sum, all: io.MultiWriter(packed, sum), left: header.Count}
	content, err := json.Marshal(header)
	if err != nil {
		return nil, err
	}
	return made, made.block(content)
}

func (w *writer) block(content []byte) error {
	if err := binary.Write(w.all, binary.BigEndian, uint32(len(content))); err != nil {
		return err
	}
	_, err := w.all.Write(content)
	return err
}

func (w *writer) add(entry Entry) error {
	if len(entry.Key) > largestKey || len(entry.Value) > largestValue {
		return fmt.Errorf("%q has %d bytes, more than a snapshot keeps", entry.Key, len(entry.Value))
	}
	if entry.Key <= w.last {
		return fmt.Errorf("%q is not after %q", entry.Key, w.last)
	}
	w.left, w.last = w.left-1, entry.Key
	kind := kindKept
	if entry.Leased {
		kind = kindLeased
	}
	if _, err := w.all.Write([]byte{kind}); err != nil {
		return err
	}
	if err := w.block([]byte(entry.Key)); err != nil {
		return err
	}
	return w.block(entry.Value)
}

func (w *writer) end() error {
	if w.left != 0 {
		return fmt.Errorf("%d keys fewer than counted", w.left)
	}
	if _, err := w.all.Write([]byte{kindEnd}); err != nil {
		return err
	}
	if _, err := w.packed.Write(w.sum.Sum(nil)); err != nil {
		return err
	}
	return w.packed.Close()
}

// Reader reads a snapshot. What it returns is to be used only after it has returned io.EOF.
type Reader struct {
	Header Header

	packed *zstd.Decoder
	from   *bufio.Reader
	sum    hash.Hash
	read   int64
	last   string
}

// NewReader reads the header.
func NewReader(from io.Reader) (*Reader, error) {
	found := make([]byte, len(magic))
	if _, err := io.ReadFull(from, found); err != nil || !bytes.Equal(found, []byte(magic)) {
		return nil, ErrForeign
	}
	packed, err := zstd.NewReader(from,
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(window))
	if err != nil {
		return nil, err
	}
	made := &Reader{packed: packed, from: bufio.NewReader(packed), sum: sha256.New()}
	if err := made.header(); err != nil {
		packed.Close()
		return nil, damaged(err)
	}
	return made, nil
}

func (r *Reader) header() error {
	content, err := r.block(largestHeader)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, &r.Header)
}

// Close frees what the reader holds.
func (r *Reader) Close() { r.packed.Close() }

func (r *Reader) bytes(length uint32) ([]byte, error) {
	content := make([]byte, length)
	if _, err := io.ReadFull(r.from, content); err != nil {
		return nil, err
	}
	r.sum.Write(content)
	return content, nil
}

func (r *Reader) block(largest uint32) ([]byte, error) {
	head, err := r.bytes(4)
	if err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head)
	if length > largest {
		return nil, fmt.Errorf("a part of %d bytes, of at most %d", length, largest)
	}
	return r.bytes(length)
}

// Next returns the next entry, and io.EOF after the last one, if the whole snapshot is as it was written.
func (r *Reader) Next() (Entry, error) {
	entry, err := r.next()
	if err != nil && err != errEnd {
		return Entry{}, damaged(err)
	}
	if err == errEnd {
		return Entry{}, io.EOF
	}
	return entry, nil
}

var errEnd = errors.New("end")

func (r *Reader) next() (Entry, error) {
	kind, err := r.bytes(1)
	if err != nil {
		return Entry{}, err
	}
	switch kind[0] {
	case kindEnd:
		return Entry{}, r.verify()
	case kindKept, kindLeased:
	default:
		return Entry{}, fmt.Errorf("an entry of kind %d", kind[0])
	}
	key, err := r.block(largestKey)
	if err != nil {
		return Entry{}, err
	}
	value, err := r.block(largestValue)
	if err != nil {
		return Entry{}, err
	}
	if string(key) <= r.last || bytes.IndexByte(key, 0) >= 0 {
		return Entry{}, fmt.Errorf("the key %q after %q", key, r.last)
	}
	r.last, r.read = string(key), r.read+1
	return Entry{Key: r.last, Value: value, Leased: kind[0] == kindLeased}, nil
}

// verify returns errEnd if nothing is missing, and nothing follows.
func (r *Reader) verify() error {
	computed := r.sum.Sum(nil)
	written := make([]byte, len(computed))
	if _, err := io.ReadFull(r.from, written); err != nil {
		return err
	}
	if !bytes.Equal(computed, written) {
		return errors.New("its checksum differs")
	}
	if r.read != r.Header.Count {
		return fmt.Errorf("%d keys, and its header has %d", r.read, r.Header.Count)
	}
	switch _, err := r.from.ReadByte(); {
	case err == nil:
		return errors.New("something follows its end")
	case err != io.EOF:
		return err
	}
	return errEnd
}
