package run

import (
	"context"
	"testing"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/informctl/informctl/cmd/informctl/internal/cluster"
	"github.com/informctl/informctl/store"
)

// TestProgressOf checks that progress says of how many objects it is, also where a
// collection is empty, unless the server does not count those of one.
func TestProgressOf(t *testing.T) {
	of := func(n int, selector string) *follower {
		list := &corev1.PodList{}
		if n > 0 {
			more := int64(n - 1)
			list.Items, list.RemainingItemCount = []corev1.Pod{{}}, &more
		}
		return &follower{Collection: &cluster.Collection{
			Scope: store.Scope{LabelSelector: selector},
			List:  func(context.Context, metav1.ListOptions) (runtime.Object, error) { return list, nil },
		}}
	}
	page := &follower{Collection: &cluster.Collection{List: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
		return &corev1.PodList{ListMeta: metav1.ListMeta{Continue: "more"}, Items: []corev1.Pod{{}}}, nil
	}}}
	const unknown = `"level"=0 "msg"="Listing" "objects"=7`
	for name, tt := range map[string]struct {
		followers []*follower
		want      string
	}{
		"one":                 {[]*follower{of(12, "")}, unknown + ` "of"=12`},
		"one of two is empty": {[]*follower{of(12, ""), of(0, "")}, unknown + ` "of"=12`},
		"with more uncounted": {[]*follower{of(12, ""), page}, unknown},
		"with a selector":     {[]*follower{of(12, ""), of(5, "app=web")}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			var got string
			p := newProgress(nil, funcr.New(func(_, args string) { got = args }, funcr.Options{}), tt.followers)
			total, known := p.total(t.Context())
			if p.log(7, total, known); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
