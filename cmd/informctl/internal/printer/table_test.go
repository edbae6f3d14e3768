package printer_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/printer"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/table"
)

// TestTable checks that the cells of a row are below their headers.
func TestTable(t *testing.T) {
	definition := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"versions": []any{map[string]any{
		"name": "v1", "additionalPrinterColumns": []any{map[string]any{"name": "Name", "type": "string", "jsonPath": ".spec.name"}},
	}}}}}
	widgets, ok := table.OfDefinition(definition, "v1")
	addresses, known := table.Of(networkingv1.SchemeGroupVersion.WithKind("IPAddress"))
	if !ok || !known {
		t.Fatal("a kind has no columns")
	}
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "demo.informctl.dev/v1", "kind": "Widget", "metadata": map[string]any{"name": "w-1"},
		"spec": map[string]any{"name": "own"},
	}}
	now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	address := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{
		Name: "10.0.0.1", Labels: map[string]string{"app": "web"}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
	}}
	for name, tt := range map[string]struct {
		kind  table.Kind
		obj   runtime.Object
		flags []string
		want  string
	}{
		"a column of the same name":       {widgets, widget, nil, "NAME NAME widget.demo.informctl.dev/w-1 own"},
		"more cells than columns, labels": {addresses, address, []string{"-L", "app"}, "NAME PARENTREF APP ipaddress.networking.k8s.io/10.0.0.1 <none> web"},
	} {
		t.Run(name, func(t *testing.T) {
			var f printer.Flags
			cmd := &cobra.Command{}
			f.Add(cmd)
			if err := cmd.ParseFlags(tt.flags); err != nil {
				t.Fatal(err)
			}
			v := &source.View{Info: store.Info{Scope: store.Scope{Kind: networkingv1.SchemeGroupVersion.WithKind("IPAddress")}}}
			i := source.NewItem(v, tt.obj.(metav1.Object).GetName())
			p := f.Table(tt.kind, source.Record, printer.TableOptions{Kinds: true, Now: func() time.Time { return now }})
			var out bytes.Buffer
			if err := p.Begin(&out); err != nil {
				t.Fatal(err)
			}
			piece, err := p.Render(printer.Object{Item: i, Object: tt.obj})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Emit(&out, []printer.Piece{piece}); err != nil {
				t.Fatal(err)
			}
			if err := p.End(&out); err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(strings.Fields(out.String()), " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// TestTableAligns checks that all rows of a large table have the columns of the widest.
func TestTableAligns(t *testing.T) {
	for _, tt := range []struct {
		flags []string
		last  int
	}{{nil, 43}, {[]string{"-L", "app"}, 49}, {[]string{"-L", "app", "--no-headers"}, 49}} {
		var f printer.Flags
		cmd := &cobra.Command{}
		f.Add(cmd)
		if err := cmd.ParseFlags(tt.flags); err != nil {
			t.Fatal(err)
		}
		now := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
		p := f.Table(table.Named(), source.Header, printer.TableOptions{Now: func() time.Time { return now }})
		var out bytes.Buffer
		if err := p.Begin(&out); err != nil {
			t.Fatal(err)
		}
		names := slices.Repeat([]string{"short"}, 299)
		for part := range slices.Chunk(append(names, strings.Repeat("n", 40)), source.ChunkSize) {
			var pieces []printer.Piece
			for _, name := range part {
				obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
					Name: name, Labels: map[string]string{"app": "web"}, CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
				}}
				piece, err := p.Render(printer.Object{Item: source.Item{View: &source.View{}, Name: name}, Object: obj})
				if err != nil {
					t.Fatal(err)
				}
				pieces = append(pieces, piece)
			}
			if err := p.Emit(&out, pieces); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.End(&out); err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(out.String()), "\n") {
			if at := strings.LastIndex(line, " ") + 1; at != tt.last {
				t.Fatalf("%q: line %d: the last cell begins at %d, want %d: %q", tt.flags, i, at, tt.last, line)
			}
		}
	}
}
