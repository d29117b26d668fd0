// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"

	"github.com/pointsman/pointsman/sdk"
	pb "github.com/pointsman/pointsman/sdk/wire/dataplanepb"
)

// Vitals are the condition of a plugin: the dataplane's Report, and what Serve knows.
type Vitals struct {
	sdk.Report

	Revision uint64        // last acknowledged revision of this session
	Role     sdk.Role      // last role set in this process; zero if none was
	Call     string        // current call, such as "Sync"; empty if none
	CallFor  time.Duration // how long the current call has run

	// Overdue is how long the call has continued after its context ended. It has a second to
	// react (contract line 11); a call that takes longer counts as hung.
	Overdue time.Duration

	Memory     uint64 // bytes resident
	LogDropped uint64 // log lines that were dropped because they were not read in time
}

// Vitals returns the condition of the plugin. It may run beside any call.
func (r *Remote) Vitals(ctx context.Context) (Vitals, error) {
	ctx, cancel := context.WithTimeout(ctx, vitalsTimeout)
	defer cancel()
	reply, err := r.client.Report(ctx, &pb.ReportRequest{}, grpc.MaxCallRecvMsgSize(maxVitals))
	if err != nil {
		return Vitals{}, r.callError("Report", err)
	}
	return decodeVitals(reply), nil
}

func encodeVitals(v Vitals) *pb.ReportReply {
	return &pb.ReportReply{
		Progress:     v.Progress,
		Waiting:      Printable(v.Waiting),
		Flows:        int64(v.Flows),
		Leaving:      Printable(v.SwapImpact),
		Repaired:     v.Repaired,
		Repair:       Printable(v.Repair),
		Lost:         Printable(v.Lost),
		Shown:        pb.Role(v.Shown),
		Revision:     v.Revision,
		Role:         pb.Role(v.Role),
		Call:         v.Call,
		CallNanos:    int64(v.CallFor),
		OverdueNanos: int64(v.Overdue),
		Memory:       v.Memory,
		LogDropped:   v.LogDropped,

		Notes:    texts[string](first(v.Notes, maxNotes)),
		Degraded: texts[string](first(v.Degraded, maxNotes)),
		Samples: each(v.Samples, func(s sdk.Sample) *pb.Sample {
			return &pb.Sample{Name: Printable(s.Name), Help: Printable(s.Help), Labels: encodeLabels(s.Labels), Value: s.Value}
		}),
		Dropped: each(v.Dropped, func(d sdk.Drops) *pb.Drops {
			return &pb.Drops{Reason: Printable(d.Reason), Family: pb.Family(d.Family), Packets: d.Packets}
		}),
		Histograms: each(v.Histograms, func(h sdk.Histogram) *pb.Histogram {
			return &pb.Histogram{Name: Printable(h.Name), Help: Printable(h.Help), Labels: encodeLabels(h.Labels), Bounds: h.Bounds, Counts: h.Counts, Sum: h.Sum}
		}),
	}
}

func encodeLabels(labels map[string]string) map[string]string {
	out := make(map[string]string, len(labels))
	for name, value := range labels {
		out[Printable(name)] = Printable(value)
	}
	return out
}

func decodeVitals(r *pb.ReportReply) Vitals {
	v := Vitals{
		Report: sdk.Report{
			Progress:   r.GetProgress(),
			Waiting:    oneLine(r.GetWaiting()),
			Flows:      int(r.GetFlows()),
			SwapImpact: oneLine(r.GetLeaving()),
			Repaired:   r.GetRepaired(),
			Repair:     oneLine(r.GetRepair()),
			Lost:       oneLine(r.GetLost()),
			Shown:      sdk.Role(enum(int32(r.GetShown()))),
			Notes:      texts[string](first(r.GetNotes(), maxNotes)),
			Degraded:   texts[string](first(r.GetDegraded(), maxNotes)),
		},
		Revision:   r.GetRevision(),
		Role:       sdk.Role(enum(int32(r.GetRole()))),
		Call:       oneLine(r.GetCall()),
		CallFor:    time.Duration(r.GetCallNanos()),
		Overdue:    time.Duration(r.GetOverdueNanos()),
		Memory:     r.GetMemory(),
		LogDropped: r.GetLogDropped(),
	}
	for _, d := range first(r.GetDropped(), maxDrops) {
		if slices.Contains(sdk.DropReasons, d.GetReason()) {
			v.Dropped = append(v.Dropped, sdk.Drops{Reason: d.GetReason(), Family: sdk.Family(enum(d.GetFamily())), Packets: d.GetPackets()})
		}
	}
	for _, s := range first(r.GetSamples(), maxSamples) {
		v.Samples = append(v.Samples, sdk.Sample{Name: s.GetName(), Help: oneLine(s.GetHelp()), Labels: s.GetLabels(), Value: s.GetValue()})
	}
	for _, h := range first(r.GetHistograms(), maxSamples) {
		v.Histograms = append(v.Histograms, sdk.Histogram{
			Name: h.GetName(), Help: oneLine(h.GetHelp()), Labels: h.GetLabels(), Bounds: h.GetBounds(), Counts: h.GetCounts(), Sum: h.GetSum(),
		})
	}
	return v
}
