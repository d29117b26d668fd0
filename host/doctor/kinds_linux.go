// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"encoding/binary"
	"syscall"
)

// Kinds returns what kinds of interfaces this node has, by name, such as "bridge" or "veth"; none of
// those that hardware has (rtnetlink(7), IFLA_LINKINFO). Where the kernel does not answer there are none.
func Kinds() map[string]string {
	kinds := make(map[string]string)
	table, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
	if err != nil {
		return kinds
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return kinds
	}
	for i := range messages {
		if messages[i].Header.Type != syscall.RTM_NEWLINK {
			continue
		}
		attributes, err := syscall.ParseNetlinkRouteAttr(&messages[i])
		if err != nil {
			continue
		}
		var name, kind string
		for _, a := range attributes {
			switch a.Attr.Type {
			case syscall.IFLA_IFNAME:
				name = text(a.Value)
			case syscall.IFLA_LINKINFO:
				kind = kindOf(a.Value)
			}
		}
		if kind != "" {
			kinds[name] = kind
		}
	}
	return kinds
}

// kindOf returns the kind (IFLA_INFO_KIND) among nested attributes.
func kindOf(nested []byte) string {
	const header, infoKind = 4, 1
	for len(nested) >= header {
		size, kind := int(binary.NativeEndian.Uint16(nested)), binary.NativeEndian.Uint16(nested[2:])
		if size < header || size > len(nested) {
			return ""
		}
		if kind == infoKind {
			return text(nested[header:size])
		}
		nested = nested[min(len(nested), (size+3)&^3):]
	}
	return ""
}

// text is a string that may end with a zero byte.
func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
