// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/windows"
)

// The layout of the structures is that of netioapi.h on 64 bits.
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

// List returns the loopback address of this machine.
func TestList(t *testing.T) {
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
