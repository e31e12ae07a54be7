package main

import (
	"slices"
	"testing"

	"github.com/coredns/coredns/core/dnsserver"

	"tenantry.dev/coredns/tenantry"
)

// H06: the cache holds answers to other tenants, so the plugin checks the client before the cache, for each question.
func TestDecidedBeforeTheCache(t *testing.T) {
	order := directives(dnsserver.Directives)
	if err := tenantry.CheckOrder(order); err != nil {
		t.Error(err)
	}
	place := slices.Index(order, tenantry.Name)
	for _, later := range []string{"cache", "transfer", "hosts", "kubernetes", "file", "forward"} {
		if slices.Index(order, later) < place {
			t.Errorf("%s comes before tenantry", later)
		}
	}
	for _, each := range [][]string{
		{"rewrite", "autopath", "dns64", "cache", "tenantry", "kubernetes"},
		{"tenantry", "rewrite", "autopath", "dns64", "cache", "kubernetes"},
		{"rewrite", "autopath", "dns64", "kubernetes", "tenantry", "cache"},
	} {
		if tenantry.CheckOrder(each) == nil {
			t.Errorf("%v was taken for an order in which nothing leaks", each)
		}
	}
}
