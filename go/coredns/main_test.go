package main

import (
	"slices"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"
)

// H06: what one tenant was answered is in the cache, so who may ask is decided before it, of the question as it is then.
func TestDecidedBeforeTheCache(t *testing.T) {
	order, err := directives(dnsserver.Directives)
	if err != nil {
		t.Fatal(err)
	}
	place := slices.Index(order, "tenantry")
	for _, later := range []string{"cache", "transfer", "hosts", "kubernetes", "file", "forward"} {
		if slices.Index(order, later) < place {
			t.Errorf("%s comes before tenantry", later)
		}
	}
	for _, earlier := range []string{"metadata", "rewrite", "autopath", "dns64"} {
		if slices.Index(order, earlier) > place {
			t.Errorf("%s comes after tenantry", earlier)
		}
	}
	if _, err := directives([]string{"cache", "rewrite", "autopath", "dns64"}); err == nil {
		t.Error("another order was taken for the known one")
	}
}
