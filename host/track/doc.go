// SPDX-License-Identifier: Apache-2.0

/*
Package track keeps the desired state of this node, and for each dataplane the
changes that it has not confirmed yet.

	SetService ┐                                   ┌─▶ Cursor of one dataplane
	SetSlice   ┼─▶ records ─reach─▶ values by Name ┤     Next ─▶ Update
	SetNode    ┘            own                    └─▶   Ack  ◀─ confirmed, failed

Each API object is reduced to a record with only the fields that matter. If the
record equals the previous one, the object is dropped: nothing is allocated and no
cursor changes. Otherwise the tracker recomputes the one Service that the object
belongs to, replaces the values that differ, and tells each cursor their names. So a
change costs the same in a small and in a large cluster. Start reading at
Tracker.SetSlice and recomputeService.

# Guarantees of a cursor

A cursor keeps, for each name, the value that its dataplane last confirmed. Values
that Next returned are in flight until Ack. A name in flight that is not confirmed
is sent again with its current value, even if that equals the last confirmed value:
nobody knows how far the dataplane got. A name that is not in flight and equals its
confirmed value is not sent. Many changes before one Next become one change; the
last state wins, and memory is limited by the number of existing Services.
*/
package track
