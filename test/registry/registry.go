// SPDX-License-Identifier: Apache-2.0

// Package registry is a registry of images and charts in memory, for tests of what a release pushes and
// a node pulls. It holds what it is given to its digests, as a real one does: what is not whole is refused.
package registry

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Registry answers pulls and pushes of the OCI distribution API. Its methods are safe for concurrent use.
type Registry struct {
	User, Password string // which every request has to have; empty: none

	mu      sync.Mutex        // guards what follows
	blobs   map[string][]byte // by digest
	types   map[string]string // of manifests, by digest
	tags    map[string]string // NAME:TAG to a digest
	uploads map[string][]byte // by number, what came so far
	begun   int               // uploads
}

// Tags are the names of all that was pushed, as NAME:TAG, with the digest of each.
func (r *Registry) Tags() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.tags)
}

// Add has a blob without a push, and returns its digest.
func (r *Registry) Add(data []byte) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	digest := Digest(data)
	set(&r.blobs, digest, data)
	return digest
}

// Tag has a manifest without a push, of a media type and under NAME:TAG; without that, under its digest.
func (r *Registry) Tag(name, kind string, manifest []byte) {
	digest := r.Add(manifest)
	r.mu.Lock()
	defer r.mu.Unlock()
	set(&r.types, digest, kind)
	if name != "" {
		set(&r.tags, name, digest)
	}
}

// Blob is what has a digest; nil: nothing has it.
func (r *Registry) Blob(digest string) []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.blobs[digest]
}

// Digest is data's.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ServeHTTP answers a request below /v2/.
func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	if user, password, _ := q.BasicAuth(); r.User != "" && (user != r.User || password != r.Password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	body, err := io.ReadAll(q.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	if name, upload, ok := strings.Cut(path, "/blobs/uploads/"); ok {
		r.upload(w, q, name, upload, body)
	} else if name, digest, ok := strings.Cut(path, "/blobs/"); ok {
		r.send(w, q, name, digest, "application/octet-stream")
	} else if name, reference, ok := strings.Cut(path, "/manifests/"); ok && q.Method == http.MethodPut {
		r.manifest(w, q, name, reference, body)
	} else if ok {
		digest := reference
		if !strings.Contains(reference, ":") {
			digest = r.tags[name+":"+reference]
		}
		r.send(w, q, name, digest, r.types[digest])
	} else if path != "" {
		http.NotFound(w, q)
	}
}

// send answers with what has a digest.
func (r *Registry) send(w http.ResponseWriter, q *http.Request, name, digest, kind string) {
	data, ok := r.blobs[digest]
	if !ok || kind == "" {
		http.Error(w, fmt.Sprintf("%s has no %s", name, digest), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Docker-Content-Digest", digest)
	http.ServeContent(w, q, "", time.Time{}, bytes.NewReader(data))
}

// upload takes a blob: at once, or in parts, of which the last one comes with the digest of all.
func (r *Registry) upload(w http.ResponseWriter, q *http.Request, name, upload string, body []byte) {
	if q.Method == http.MethodPost {
		if mounted := q.URL.Query().Get("mount"); mounted != "" && r.blobs[mounted] != nil {
			r.created(w, name+"/blobs/", mounted)
			return
		}
		r.begun++
		upload = strconv.Itoa(r.begun)
	} else if _, ok := r.uploads[upload]; !ok {
		http.NotFound(w, q)
		return
	}
	all := slices.Concat(r.uploads[upload], body)
	digest := q.URL.Query().Get("digest")
	switch {
	case digest == "":
		set(&r.uploads, upload, all)
		w.Header().Set("Location", "/v2/"+name+"/blobs/uploads/"+upload)
		w.Header().Set("Range", fmt.Sprintf("0-%d", max(0, len(all)-1)))
		w.WriteHeader(http.StatusAccepted)
	case digest != Digest(all):
		http.Error(w, fmt.Sprintf("%d bytes are %s, and not %s", len(all), Digest(all), digest), http.StatusBadRequest)
	default:
		delete(r.uploads, upload)
		set(&r.blobs, digest, all)
		r.created(w, name+"/blobs/", digest)
	}
}

// manifest takes one, once all that it names is there.
func (r *Registry) manifest(w http.ResponseWriter, q *http.Request, name, reference string, body []byte) {
	type descriptor struct{ Digest string }
	var m struct {
		Config            descriptor
		Layers, Manifests []descriptor
	}
	if err := json.Unmarshal(body, &m); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	for _, d := range append(slices.Concat(m.Layers, m.Manifests), m.Config) {
		if d.Digest != "" && r.blobs[d.Digest] == nil {
			http.Error(w, fmt.Sprintf("%s:%s names %s, which is not here", name, reference, d.Digest), http.StatusBadRequest)
			return
		}
	}
	digest := Digest(body)
	if strings.Contains(reference, ":") && reference != digest {
		http.Error(w, "it is "+digest+", and not "+reference, http.StatusBadRequest)
		return
	}
	set(&r.blobs, digest, body)
	set(&r.types, digest, q.Header.Get("Content-Type"))
	if reference != digest {
		set(&r.tags, name+":"+reference, digest)
	}
	r.created(w, name+"/manifests/", digest)
}

func (r *Registry) created(w http.ResponseWriter, at, digest string) {
	w.Header().Set("Location", "/v2/"+at+digest)
	w.Header().Set("Docker-Content-Digest", digest)
	w.WriteHeader(http.StatusCreated)
}

func set[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
