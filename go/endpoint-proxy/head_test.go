package main

import (
	"slices"
	"testing"
	"time"
)

// inRecords divides a message: each size is that of one record, and the last record has the rest.
func inRecords(message []byte, sizes ...int) []byte {
	var found []byte
	for _, size := range append(sizes, len(message)) {
		size = min(size, len(message))
		found = append(found, handshakeRecord, 3, 1, byte(size>>8), byte(size))
		found = append(found, message[:size]...)
		message = message[size:]
	}
	return found
}

func TestOnlyAWholeClientHelloIsOne(t *testing.T) {
	for length := range greeting {
		if isWhole, err := isHello(greeting[:length]); isWhole || err != nil {
			t.Fatalf("%d bytes: %v, %v", length, isWhole, err)
		}
	}
	message := greeting[5:]
	inTwo, inMany := inRecords(message, 3), inRecords(message, 1, 1, 1, 1, 1, 20, 9)
	for _, each := range [][]byte{greeting, append(slices.Clone(greeting), "more"...), inTwo, inMany} {
		if isWhole, err := isHello(each); !isWhole || err != nil {
			t.Errorf("got %v, %v", isWhole, err)
		}
	}
	for name, each := range map[string][]byte{
		"another protocol":     []byte("GET / HTTP/1.1\r\n"),
		"an alert":             {21, 3, 1, 0, 2, 1, 0},
		"another version":      {22, 2, 0, 0, 5},
		"an empty record":      {22, 3, 1, 0, 0},
		"a record too long":    {22, 3, 1, 0xff, 0xff},
		"another message":      {22, 3, 1, 0, 4, 2, 0, 0, 0},
		"a message too long":   {22, 3, 1, 0, 4, 1, 1, 0, 0},
		"an empty ClientHello": {22, 3, 1, 0, 4, 1, 0, 0, 0},
		"no ClientHello":       {22, 3, 1, 0, 8, 1, 0, 0, 4, 9, 9, 9, 9},
		"too many records":     inRecords(message, 1, 1, 1, 1, 1, 1, 1, 1),
	} {
		if _, err := isHello(each); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func TestAClientHelloOfManyTinyRecordsIsRefusedBeforeItIsWhole(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	c.all.helloTime = time.Hour
	to, server := c.running("a")
	tiny := inRecords(greeting[5:], slices.Repeat([]int{1}, len(greeting))...)
	client := c.connect(to)
	// The first byte of the record that is too many.
	_, err := client.Write(tiny[:6*maxRecords+1])
	check(t, err)
	closes(t, client)
	few := inRecords(greeting[5:], 1, 30)
	_, err = c.connect(to).Write(few)
	check(t, err)
	acceptBeginning(t, server, few)
}

func TestConnectionsThatOnlyBeginTakeNoPlaceOfOthers(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	c.all.helloTime = time.Hour
	to, server := c.running("a")
	for range maxOpen + 88 {
		_, err := c.connect(to).Write(greeting[:3])
		check(t, err)
	}
	c.dial(to)
	accept(t, server)
	share := c.known("a").share
	share.newcomers.mu.Lock()
	defer share.newcomers.mu.Unlock()
	if many := len(share.newcomers.all); many > maxOpen/4 {
		t.Fatalf("%d have not begun", many)
	}
}

func TestConnectionsThatOnlyBeginEndNoneOfTheOperator(t *testing.T) {
	c := newCluster(t, time.Hour, nil)
	c.all.helloTime = time.Hour
	to, server := c.runningForOperator("a")
	operator := c.connect(process{Port: to.Operator})
	_, err := operator.Write(greeting[:3])
	check(t, err)
	for range maxOpen + 88 {
		_, err := c.connect(to).Write(greeting[:3])
		check(t, err)
	}
	_, err = operator.Write(greeting[3:])
	check(t, err)
	accept(t, server)
}

func TestOneAddressLeavesConnectionsToOthers(t *testing.T) {
	of := peers{used: map[string]int64{}}
	for number, wanted := range []bool{true, true, false} {
		if of.take("10.0.0.1", 2) != wanted {
			t.Fatalf("connection %d of an address of two: not %t", number, wanted)
		}
	}
	if !of.take("10.0.0.2", 2) {
		t.Fatal("another address has none")
	}
	of.give("10.0.0.1")
	if !of.take("10.0.0.1", 2) {
		t.Fatal("a connection that has ended is counted")
	}
	for range 9 {
		if !of.take("", 2) {
			t.Fatal("programs of this machine share a limit")
		}
	}
}
