package store

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Form is the Go form of a scope's objects.
type Form uint8

// The forms of objects that client-go's informers support.
const (
	Typed        Form = iota // generated structs
	Unstructured             // *unstructured.Unstructured
	Metadata                 // *metav1.PartialObjectMetadata
)

// String returns "typed", "unstructured" or "metadata".
func (f Form) String() string {
	switch f {
	case Typed:
		return "typed"
	case Unstructured:
		return "unstructured"
	case Metadata:
		return "metadata"
	}
	return fmt.Sprintf("form(%d)", uint8(f))
}

// Scope identifies the collection that an informer holds. Stored state is reused only for
// an equal Scope, because a difference in any field is a different request to the server.
type Scope struct {
	Cluster       string // identity of the cluster; "" if the caller guarantees it
	Resource      string // "pods", "deployments.apps": the resource as kubectl writes it
	Kind          schema.GroupVersionKind
	Namespace     string // "" means all namespaces
	LabelSelector string // canonical form
	FieldSelector string // canonical form
	Form          Form   // Typed, Unstructured or Metadata
}

// Canonical returns the scope with its selectors as their parsers print them, so that two
// spellings of the same selector give the same scope. The error names the selector that
// cannot be parsed.
func (s Scope) Canonical() (Scope, error) {
	label, err := labels.Parse(s.LabelSelector)
	if err != nil {
		return s, fmt.Errorf("label selector %q: %w", s.LabelSelector, err)
	}
	field, err := fields.ParseSelector(s.FieldSelector)
	if err != nil {
		return s, fmt.Errorf("field selector %q: %w", s.FieldSelector, err)
	}
	s.LabelSelector, s.FieldSelector = label.String(), field.String()
	return s, nil
}

// ID returns the name of the scope in a database: a hash of all its fields. Only equal
// scopes have equal IDs.
func (s Scope) ID() string {
	h := sha256.New()
	for _, part := range []string{
		s.Cluster, s.Resource, s.Kind.Group, s.Kind.Version, s.Kind.Kind,
		s.Namespace, s.LabelSelector, s.FieldSelector, s.Form.String(),
	} {
		fmt.Fprintf(h, "%d:%s,", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// IsSecret reports whether the scope contains Secrets, in any form: even their metadata
// may contain secret data, in annotations.
func (s Scope) IsSecret() bool {
	return s.Resource == "secrets" || s.Kind.Group == "" && s.Kind.Kind == "Secret"
}

// String describes the scope for a person: resource, namespace, selectors and, if it is
// not typed, the form.
func (s Scope) String() string {
	var b strings.Builder
	b.WriteString(s.Resource)
	if s.Namespace != "" {
		b.WriteString(" in " + s.Namespace)
	}
	if s.LabelSelector != "" {
		b.WriteString(" with labels " + s.LabelSelector)
	}
	if s.FieldSelector != "" {
		b.WriteString(" with fields " + s.FieldSelector)
	}
	if s.Form != Typed {
		b.WriteString(" (" + s.Form.String() + ")")
	}
	return b.String()
}
