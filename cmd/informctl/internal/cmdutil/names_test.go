package cmdutil

import (
	"fmt"
	"testing"
)

// TestNames checks that a few names are listed, and of many some.
func TestNames(t *testing.T) {
	few := []string{"pods", "nodes", "services"}
	many := make([]string, 0, 40)
	for i := range 40 {
		many = append(many, fmt.Sprint("kind-", 10+i))
	}
	many[30] = "deployments.apps"
	for _, tt := range []struct {
		names                []string
		listed, whole, among string
	}{
		{nil, "nothing", "true", ""},
		{few, "pods, nodes, services", "true", "pods, nodes, services"},
		{many, "40, of which the closest are deployments.apps, kind-10, kind-11", "false", "kind-10, kind-11, kind-12 and 37 more"},
	} {
		listed, whole := Listed("deploymnet", tt.names)
		if listed != tt.listed || fmt.Sprint(whole) != tt.whole {
			t.Errorf("listed: %q, %v", listed, whole)
		}
		if got := Some(tt.names); got != tt.among {
			t.Errorf("some: %q, want %q", got, tt.among)
		}
	}
}
