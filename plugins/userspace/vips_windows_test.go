// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
)

// TestRow: the structure is as netioapi.h has it on 64 bits: 80 bytes, with a table's rows at 8.
func TestRow(t *testing.T) {
	var row windows.MibUnicastIpAddressRow
	var table windows.MibUnicastIpAddressTable
	for what, c := range map[string]struct{ got, want uintptr }{
		"row":                {unsafe.Sizeof(row), 80},
		"InterfaceLuid":      {unsafe.Offsetof(row.InterfaceLuid), 32},
		"OnLinkPrefixLength": {unsafe.Offsetof(row.OnLinkPrefixLength), 60},
		"SkipAsSource":       {unsafe.Offsetof(row.SkipAsSource), 61},
		"DadState":           {unsafe.Offsetof(row.DadState), 64},
		"CreationTimeStamp":  {unsafe.Offsetof(row.CreationTimeStamp), 72},
		"table":              {unsafe.Offsetof(table.Table), 8},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", what, c.got, c.want)
		}
	}
}

// TestListHere: an interface of this machine has the loopback address.
func TestListHere(t *testing.T) {
	on, err := indexOf("")
	if err != nil {
		t.Fatal(err)
	}
	all, err := theInterfaces().List()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if a.addr.IsLoopback() && a.index == on {
			return
		}
	}
	t.Errorf("%v has no loopback address: %v", on, all)
}
