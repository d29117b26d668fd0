// SPDX-License-Identifier: Apache-2.0

/*
Package nftables serves Services with sets and maps of nf_tables, in one table per IP family.
The rules are created once, when the first Service needs them. A change of a Service is a few elements in
one netlink batch, whatever the number of Services.

	sdk.Service ─▶ want.go       maps a Service to its piece: frontends, endpoints, affinity; pure
	            ─▶ elements.go   returns the elements of a piece; pure
	            ─▶ reconcile     compares them with what the kernel has
	            ─▶ kernel.go     writes the difference by batch.go, and lists the table
	kernel      ─▶ dump.go       parses the entries of a table into pieces; pure

entries.go has the keys and values of all entries of a table: sets, chains and elements. layout.go and chains.go have
the sets and the rules, parts.go says which of them a Service needs, and affinity.go how clients keep their endpoints.
drift.go detects what other programs changed. docs/nftables.md lists the sets and maps.

The package never writes to another table of nf_tables, except to remove those of kube-proxy in a cleanup. Package masquerade
maintains the chains of iptables that other programs need. Start reading at want in want.go.

The path of a packet. KEY is destination address, protocol and port; PORT is protocol and port; ORIG and ORIGPORT are the same of
the connection's first packet, before translation:

	nat-prerouting  -100  jump pre             nat-output  -100  jump out
	nat-postrouting  100  jump post            nat-input    100  jump remember
	filter-forward     0  jump invalid; jump refused          filter-output  0  jump refused
	filter-admit      -1  new connection, translated: jump admit       filter-forget 99  new connection, translated: jump forget
	nat-kept         101  keeps connection tracking active

	pre, out  from pods of this node, or the node: jump near
	          goto far
	far       KEY @frontends                            goto gate
	          daddr @own  PORT @port-frontends          goto port-gate
	near      KEY @near-frontends                       goto near-gate
	          KEY @frontends                            return
	          daddr @own  PORT @near-port-frontends     goto near-port-gate
	gate      KEY @gated  KEY . saddr != @allowed       goto source-range
	          goto service
	service   KEY map @keeps, @keeps-local              jump keep, keep-local
	          KEY @of-1 goto pick-1  …  KEY @of-65536 goto pick-65536
	          KEY @unserved goto no-endpoint
	          goto local-without-endpoint               no endpoint for this client
	keep      dnat to the endpoint in @sticky
	pick-N    dnat to a random slot of @endpoints below N (chain try-N); try again if the slot is empty
	refuse    tcp: reset; else: port unreachable
	source-range, local-without-endpoint   count; drop
	no-endpoint                            count; goto refuse
	foreign-port                           count; daddr @vips goto refuse; else drop

	post      not translated: accept
	          jump remember
	          saddr . daddr @hairpin; ORIG @outside; from this node: ORIG @outside-local    goto hide
	          ORIG @frontends  original daddr @vips     goto inside
	          original daddr @own: the same with ORIGPORT @port-outside, @port-outside-local
	inside    masqueradeAll, or saddr is no pod, if pods are known: goto hide
	hide      masquerade fully-random
	remember  ORIG map @keeps, @keeps-local: jump note, which updates @sticky
	looped    in and out by one interface of a default route, daddr in no prefix on its link, daddr @external: goto foreign-port
	invalid   ct state invalid drop; nothing if tcpBeLiberal
	admit     ORIG @frontends; original daddr @own ORIGPORT @port-frontends: set the bit masqueradeBit of the mark
	forget    the same: clear the bit
	refused   ct state new daddr @vips goto foreign-port      a port that no Service has
	          with ServiceCIDRs: ct state new daddr in one of them: goto foreign-port
	          goto looped

The chains with the prefixes near-, port- and near-port- do the same with the sets of their prefix. The mark is set only from
filter-admit to filter-forget, for iptables' FORWARD. Rules with affinity keep a number in the packet's priority and set it back
to zero, because nft 1.0.6 to 1.1.7 abort when they list a rule that looks up a value from another map.
*/
package nftables
