package table_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/informctl/informctl/table"
)

// others are the built-in resources whose columns the server has and package table does
// not: they are printed with name and age. docs/columns.md lists them.
var others = []string{
	"apiservices.apiregistration.k8s.io",
	"certificatesigningrequests.certificates.k8s.io",
	"clustertrustbundles.certificates.k8s.io",
	"componentstatuses",
	"controllerrevisions.apps",
	"csidrivers.storage.k8s.io",
	"csinodes.storage.k8s.io",
	"csistoragecapacities.storage.k8s.io",
	"devicetaintrules.resource.k8s.io",
	"flowschemas.flowcontrol.apiserver.k8s.io",
	"ingressclasses.networking.k8s.io",
	"ipaddresses.networking.k8s.io",
	"limitranges",
	"mutatingadmissionpolicies.admissionregistration.k8s.io",
	"mutatingadmissionpolicybindings.admissionregistration.k8s.io",
	"mutatingwebhookconfigurations.admissionregistration.k8s.io",
	"podcertificaterequests.certificates.k8s.io",
	"podtemplates",
	"priorityclasses.scheduling.k8s.io",
	"prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
	"resourceclaims.resource.k8s.io",
	"resourcequotas",
	"resourceslices.resource.k8s.io",
	"runtimeclasses.node.k8s.io",
	"servicecidrs.networking.k8s.io",
	"storageversionmigrations.storagemigration.k8s.io",
	"validatingadmissionpolicies.admissionregistration.k8s.io",
	"validatingadmissionpolicybindings.admissionregistration.k8s.io",
	"validatingwebhookconfigurations.admissionregistration.k8s.io",
	"volumeattachments.storage.k8s.io",
	"volumeattributesclasses.storage.k8s.io",
}

// TestOthers checks that the list above is what the server has, so that a resource of a
// newer server is not overlooked.
func TestOthers(t *testing.T) {
	w := newWorld(t)
	lists, err := discovery.ServerPreferredResources(discovery.NewDiscoveryClient(w.server))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range list.APIResources {
			gvr := gv.WithResource(r.Name)
			if _, ok := resources[gvr]; ok || strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") {
				continue
			}
			if !cmp.Equal(w.ask(gvr).columns, table.Named().Columns()) {
				got = append(got, gvr.GroupResource().String())
			}
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(others, got); diff != "" {
		t.Errorf("(-want +server):\n%s", diff)
	}
}
