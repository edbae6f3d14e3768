package fakeapi

import (
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// List is like ListWithContext but without a context.
//
// Deprecated: cache.ListerWatcher requires it; call ListWithContext.
func (s *Server) List(opts metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.TODO(), opts)
}

// ListWithContext returns copies of the objects, in key order. It blocks only between
// Hold and Release, or until the context ends. All pages of a list have the same resource
// version.
func (s *Server) ListWithContext(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.acceptLocked(ctx, "list", opts, &s.failLists); err != nil {
		return nil, err
	}
	if opts.Limit != 1 {
		if err := s.releasedLocked(ctx); err != nil {
			return nil, err
		}
	}
	rv, after, err := s.snapshotLocked(opts)
	if err != nil {
		return nil, err
	}
	state := s.stateLocked(rv)
	keys := slices.Sorted(maps.Keys(state))
	from, _ := slices.BinarySearch(keys, after)
	if after != "" && from < len(keys) && keys[from] == after {
		from++
	}
	keys = keys[from:]
	list := s.list.DeepCopyObject()
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, fmt.Errorf("fakeapi: %w", err)
	}
	accessor.SetResourceVersion(s.format(rv))
	if n := s.page(opts); n > 0 && n < len(keys) {
		accessor.SetRemainingItemCount(ptr.To(int64(len(keys) - n)))
		keys = keys[:n]
		accessor.SetContinue(base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %s", rv, keys[n-1])))
	}
	items := make([]runtime.Object, len(keys))
	for i, key := range keys {
		items[i] = state[key].DeepCopyObject()
	}
	if err := meta.SetList(list, items); err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return list, nil
}

// releasedLocked releases the lock and waits until Release or the end of ctx.
func (s *Server) releasedLocked(ctx context.Context) error {
	held := s.held
	if held == nil {
		return nil
	}
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-held:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// page returns the number of objects per page; 0 means all.
func (s *Server) page(opts metav1.ListOptions) int {
	n := int(opts.Limit)
	if bound := s.opts.MaxPage; bound > 0 && (n == 0 || bound < n) {
		n = bound
	}
	// As in a real server, a list from the watch cache has no pages.
	if opts.ResourceVersion == "0" {
		return 0
	}
	return n
}

// snapshotLocked returns the resource version of a list and the key after which it
// starts.
func (s *Server) snapshotLocked(opts metav1.ListOptions) (rv uint64, after string, err error) {
	if opts.Continue != "" {
		return s.continueLocked(opts.Continue)
	}
	rv, err = s.parse(opts.ResourceVersion)
	if err != nil {
		return 0, "", err
	}
	// With a limit and without a match, a resource version means exactly that one.
	exact := opts.ResourceVersionMatch == metav1.ResourceVersionMatchExact || opts.ResourceVersionMatch == "" && opts.Limit > 0
	switch {
	case rv > s.now:
		return 0, "", s.tooLarge(rv)
	case rv == 0 || !exact:
		return s.now, "", nil
	case rv < s.oldest:
		return 0, "", s.tooOld(rv)
	}
	return rv, "", nil
}

func (s *Server) continueLocked(token string) (rv uint64, after string, err error) {
	raw, err := base64.RawURLEncoding.DecodeString(token)
	number, after, ok := strings.Cut(string(raw), " ")
	if err == nil && ok {
		rv, err = strconv.ParseUint(number, 10, 64)
	}
	switch {
	case err != nil || !ok || rv > s.now:
		return 0, "", apierrors.NewBadRequest("fakeapi: invalid continue token")
	case rv < s.oldest:
		return 0, "", apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result.")
	}
	return rv, after, nil
}
