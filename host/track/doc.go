// SPDX-License-Identifier: Apache-2.0

/*
Package track keeps what should be served on this node, and what each dataplane
has not yet confirmed of it.

	SetService ┐                                   ┌─▶ Cursor of one dataplane
	SetSlice   ┼─▶ records ─reach─▶ values by Name ┤     Next ─▶ Update
	SetNode    ┘            own                    └─▶   Ack  ◀─ confirmed, failed

An object becomes a record that holds what matters of it. A record that is equal
to the one before has no effect: nothing is allocated and no cursor is
touched. Otherwise the one Service it belongs to is decided again, the values
that differ are put in place, and each cursor notes their names. So the cost
follows the change, whatever the size of the cluster.

# What a cursor promises

A cursor keeps, for each name, the value that its dataplane last confirmed. What
Next hands out stays in flight until Ack. A name in flight that is not confirmed
is handed out again, as things are then, even if its value is back at what was once
confirmed: it is not known how far the dataplane got. A name that is not in flight
and equal to what was confirmed is not handed out at all. Many changes before one Next
are one change; last state wins, and memory is bounded by what exists.
*/
package track
