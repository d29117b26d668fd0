// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// RoleFile grants all that the host asks of an API server.
const RoleFile = "configs/kubernetes/rbac.yaml"

// A Permission is one thing that the host asks of an API server.
type Permission struct {
	Verb, Group, Resource string
	Name                  string // of the one object that is asked for; empty: all are
	Spared                bool   // the host goes on without it
}

// String reads as RBAC has it: "watch endpointslices.discovery.k8s.io".
func (p Permission) String() string {
	text := p.Verb + " " + p.Resource
	if p.Group != "" {
		text += "." + p.Group
	}
	return text
}

// permissions returns all that the host of the node asks.
func permissions(node string) []Permission {
	all := []Permission{{Verb: "create", Group: "events.k8s.io", Resource: "events", Spared: true}}
	for _, kind := range []Permission{
		{Resource: "services"},
		{Group: "discovery.k8s.io", Resource: "endpointslices"},
		{Resource: "nodes", Name: node},
		{Group: "networking.k8s.io", Resource: "servicecidrs", Spared: true},
	} {
		for _, kind.Verb = range []string{"list", "watch"} {
			all = append(all, kind)
		}
	}
	return all
}

// reviewTimeout is how long the API server may take to answer about one permission.
const reviewTimeout = 5 * time.Second

// Denied asks the API server what it keeps from the host of the node, and returns that. It
// asks for nothing else, and needs no permission that a role has to grant (system:basic-user).
// The error is that the server did not answer, or not that.
func (c *Client) Denied(ctx context.Context, node string) (denied []Permission, err error) {
	for _, p := range permissions(node) {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: p.Verb, Group: p.Group, Resource: p.Resource, Name: p.Name},
		}}
		if err := c.review(ctx, review); err != nil {
			return nil, fmt.Errorf("ask the API server whether this host may %s: %w", p, err)
		}
		if !review.Status.Allowed {
			denied = append(denied, p)
		}
	}
	return denied, nil
}

// review has the API server fill in a review.
func (c *Client) review(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview) error {
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	return c.reviews.Post().Resource("selfsubjectaccessreviews").Body(review).Do(ctx).Into(review)
}
