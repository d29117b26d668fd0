// SPDX-License-Identifier: Apache-2.0

package nftnl

import "time"

// An Expr is one expression of a rule (NFTA_LIST_ELEM of NFTA_RULE_EXPRESSIONS). The kernel evaluates the
// expressions in order until one does not match. They pass values in registers. The comment of each constructor
// has the kernel's name.
type Expr struct{ name, data string } // NFTA_EXPR_NAME, NFTA_EXPR_DATA

func expr(name string, attrs ...string) Expr { return Expr{name, nest(2, attrs...)} }

// A Reg is a register of 4 bytes, from 0 to 15.
type Reg uint8

// as encodes the register in an attribute in the form that the kernel lists: NFT_REG_1 to NFT_REG_4 at the
// start of a 16-byte register, NFT_REG32_00 and up for the others.
func (r Reg) as(kind uint16) string {
	if r%4 == 0 {
		return num(kind, 1+uint32(r)/4)
	}
	return num(kind, 8+uint32(r))
}

// verdictReg is NFT_REG_VERDICT. The kernel executes a verdict in it.
const verdictReg = 0

// A MetaKey is a key of Meta: NFT_META_*.
type MetaKey uint32

// The keys of Meta.
const (
	MetaPriority MetaKey = 2  // in host order
	MetaMark     MetaKey = 3  // in host order
	MetaIif      MetaKey = 4  // index of the input interface, in host order; 0: none
	MetaIifName  MetaKey = 6  // name of the input interface, 16 bytes
	MetaOifName  MetaKey = 7  // name of the output interface, 16 bytes
	MetaTrace    MetaKey = 12 // one byte: whether the packet is traced (Conn.Traces)
	MetaNFProto  MetaKey = 15 // one byte: IPv4 or IPv6, as a Family
	MetaL4Proto  MetaKey = 16 // one byte
)

// Meta loads a property of the packet ("meta").
func Meta(key MetaKey, into Reg) Expr { return expr("meta", num(2, uint32(key)), into.as(1)) }

// SetMeta sets a property of the packet ("meta").
func SetMeta(key MetaKey, from Reg) Expr { return expr("meta", num(2, uint32(key)), from.as(3)) }

// A Header is the base of Payload's offset: NFT_PAYLOAD_*_HEADER.
type Header uint32

// The headers.
const (
	Network   Header = 1
	Transport Header = 2
)

// Payload loads n bytes of the packet ("payload").
func Payload(from Header, offset, n uint32, into Reg) Expr {
	return expr("payload", into.as(1), num(2, uint32(from)), num(3, offset), num(4, n))
}

// A CTKey is a key of CT: NFT_CT_*.
type CTKey uint32

// The keys of CT. State and status are in host order. The others need a direction.
const (
	CTState    CTKey = 0  // bits: 1 invalid, 2 established, 4 related, 8 new
	CTStatus   CTKey = 2  // IPS_*: 32 if the destination is translated
	CTProtoDst CTKey = 12 // a port
	CTDstIP    CTKey = 20
	CTDstIP6   CTKey = 22
)

// CT loads a property of the packet's connection ("ct").
func CT(key CTKey, into Reg) Expr { return expr("ct", num(2, uint32(key)), into.as(1)) }

// CTOriginal loads a property of the connection's first packet before translation ("ct", IP_CT_DIR_ORIGINAL).
func CTOriginal(key CTKey, into Reg) Expr {
	return expr("ct", num(2, uint32(key)), into.as(1), num8(3, 0))
}

// A CmpOp is a comparison of Cmp: NFT_CMP_*.
type CmpOp uint32

// The comparisons.
const (
	Equal    CmpOp = 0
	NotEqual CmpOp = 1
)

// Cmp matches if the start of a register compares with a constant in the given way ("cmp").
func Cmp(op CmpOp, reg Reg, with string) Expr {
	return expr("cmp", reg.as(1), num(2, uint32(op)), value(3, with))
}

// Mask keeps the bits of a register that are in mask ("bitwise", NFT_BITWISE_BOOL).
func Mask(reg Reg, mask string) Expr { return Turn(reg, mask, string(make([]byte, len(mask)))) }

// Turn clears the bits that are not in mask, and then flips the bits in turned ("bitwise", NFT_BITWISE_BOOL).
func Turn(reg Reg, mask, turned string) Expr {
	return expr("bitwise", reg.as(1), reg.as(2), num(3, uint32(len(mask))), value(4, mask), value(5, turned))
}

// In matches if the key that starts in a register is in a set ("lookup").
func In(set string, key Reg) Expr { return expr("lookup", text(1, set), key.as(2)) }

// NotIn matches if the key is not in a set ("lookup", NFT_LOOKUP_F_INV).
func NotIn(set string, key Reg) Expr { return expr("lookup", text(1, set), key.as(2), num(5, 1)) }

// Find matches if the key is in a map, and loads its data ("lookup").
func Find(set string, key, into Reg) Expr {
	return expr("lookup", text(1, set), key.as(2), into.as(3))
}

// A Verdict decides what happens to a packet. The zero Verdict drops it.
type Verdict struct {
	code  int32
	chain string
}

// The verdicts without a chain: NF_DROP, NF_ACCEPT, NFT_RETURN.
var (
	Drop   = Verdict{code: 0}
	Accept = Verdict{code: 1}
	Return = Verdict{code: -5}
)

// Jump continues in a chain and returns at its end (NFT_JUMP).
func Jump(chain string) Verdict { return Verdict{code: -3, chain: chain} }

// Goto continues in a chain without returning (NFT_GOTO).
func Goto(chain string) Verdict { return Verdict{code: -4, chain: chain} }

// Chain returns the target of a Jump or Goto.
func (v Verdict) Chain() string { return v.chain }

// as encodes the verdict in an attribute: NFTA_DATA_VERDICT.
func (v Verdict) as(kind uint16) string {
	code := num(1, uint32(v.code))
	if v.chain == "" {
		return nest(kind, nest(2, code))
	}
	return nest(kind, nest(2, code, text(2, v.chain)))
}

// Do executes a verdict ("immediate").
func Do(v Verdict) Expr { return expr("immediate", num(1, verdictReg), v.as(2)) }

// Load loads a constant into registers ("immediate").
func Load(into Reg, constant string) Expr {
	return expr("immediate", into.as(1), value(2, constant))
}

// Random loads a random number less than below, in host order ("numgen", NFT_NG_RANDOM).
func Random(below uint32, into Reg) Expr {
	return expr("numgen", into.as(1), num(2, below), num(3, 1), num(4, 0))
}

// DNAT translates the destination of the connection to an address and a port ("nat", NFT_NAT_DNAT).
func DNAT(family Family, addr, port Reg) Expr {
	return expr("nat", num(1, 1), num(2, uint32(family)), addr.as(3), port.as(5))
}

// Masquerade translates the source of the connection to the address of the output interface and a random free
// port ("masq", NF_NAT_RANGE_PROTO_RANDOM_FULLY).
func Masquerade() Expr { return expr("masq", num(1, 1<<4)) }

// Counter counts the packets that reach it ("counter").
func Counter() Expr { return expr("counter") }

// Limit lets this number of packets pass in a second ("limit", NFT_LIMIT_PKTS).
func Limit(packets uint32) Expr {
	return expr("limit", num64(1, uint64(packets)), num64(2, 1), num(3, packets))
}

// Reset answers with a TCP reset, and drops the packet ("reject", NFT_REJECT_TCP_RST).
func Reset() Expr { return expr("reject", num(1, 1)) }

// Unreachable answers that the port is unreachable, and drops the packet ("reject",
// NFT_REJECT_ICMP_UNREACH).
func Unreachable(family Family) Expr {
	code := map[Family]uint8{IPv4: 3, IPv6: 4}
	return expr("reject", num(1, 0), num8(2, code[family]))
}

// Local is the result of Fib for an address of this node: RTN_LOCAL.
const Local = 2

// Fib loads the type of the destination address, in host order ("fib", NFT_FIB_RESULT_ADDRTYPE of
// NFTA_FIB_F_DADDR).
func Fib(into Reg) Expr { return expr("fib", into.as(1), num(2, 3), num(3, 1<<1)) }

// Remember adds an element to a map, with key and data from registers and a timeout. If the key exists, it
// restarts the timeout and keeps the data ("dynset", NFT_DYNSET_OP_UPDATE).
func Remember(set string, key, data Reg, timeout time.Duration) Expr {
	return expr("dynset", text(1, set), num(3, 1), key.as(4), data.as(5), num64(6, uint64(timeout.Milliseconds())))
}
