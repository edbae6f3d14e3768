package relay_test

import (
	"net/url"
	"strings"
	"testing"
)

// The forms of answers.
const (
	asJSON        = "application/json"
	asYAML        = "application/yaml"
	asProtobuf    = "application/vnd.kubernetes.protobuf"
	asCBOR        = "application/cbor"
	asTable       = "application/json;as=Table;g=meta.k8s.io;v=v1"
	partial       = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	partialList   = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	protoPartial  = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	protoMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
)

const (
	pods     = "/api/v1/pods"
	ofCustom = "/apis/test.informctl.example/v1/namespaces/default/gadgets"
)

// TestRelay asks both the same.
func TestRelay(t *testing.T) {
	w := newWorld(t)
	t.Run("reads", func(t *testing.T) {
		for name, test := range map[string]func(*testing.T){
			"forms": w.testForms, "all kinds": w.testAllKinds, "fields": w.testFields, "labels": w.testLabels, "versions": w.testVersions,
			"pages": w.testPages, "nothing there": w.testNothingThere, "documents": w.testDocuments, "reviews": w.testReviews, "changes": w.testChanges,
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t)
			})
		}
	})
	t.Run("watches", w.testWatches)
	t.Run("differences", func(t *testing.T) {
		for _, d := range differences {
			if !d.found.Load() {
				t.Errorf("%s is not different any more, though %s", d.of, d.why)
			}
		}
	})
}

// testForms asks for lists and objects in all forms.
func (w *world) testForms(t *testing.T) {
	forms := []string{
		"", "*/*", asJSON, asYAML, asProtobuf, asCBOR, "text/html", asTable, partial, partialList, protoPartial, protoMetadata,
		asProtobuf + "," + asJSON, asTable + "," + asJSON, protoMetadata + "," + partialList + "," + asJSON,
		"application/json;as=Table;g=meta.k8s.io;v=v1beta1", "application/json;as=Table;g=meta.k8s.io;v=v2", "application/json;as=Other;g=meta.k8s.io;v=v1",
		"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1", "application/yaml;as=Table;g=meta.k8s.io;v=v1",
		"application/vnd.kubernetes.protobuf;as=Table;g=meta.k8s.io;v=v1", "application/yaml;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
	}
	var all []request
	for _, path := range []string{
		"/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/pods/selected", "/apis/apps/v1/statefulsets",
		"/apis/apps/v1/namespaces/default/statefulsets/with-volumes", "/api/v1/nodes", "/api/v1/namespaces/default", "/api/v1/events",
		ofCustom, ofCustom + "/red", "/apis/test.informctl.example/v1/gadgets", "/apis/demo.informctl.dev/v1/widgets",
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
	} {
		for _, form := range forms {
			all = append(all, request{path: path, accept: form})
		}
		for _, query := range []string{"includeObject=None", "includeObject=Metadata", "includeObject=Object", "includeObject=Some", "limit=2&includeObject=None", "limit=2"} {
			all = append(all, request{path: path + "?" + query, accept: asTable})
		}
		for _, form := range []string{"", partialList, asTable} {
			all = append(all, request{path: path + "?pretty=true", accept: form})
		}
	}
	for _, form := range []string{asJSON, asProtobuf, asTable, partialList, protoMetadata} {
		all = append(all, request{path: pods, accept: form})
	}
	w.same(t, all...)
}

// testAllKinds asks for all objects of each kind.
func (w *world) testAllKinds(t *testing.T) {
	var all []request
	for path, r := range w.collections() {
		if r.Name == "leases" {
			// The server renews its own, in another namespace.
			path = strings.Replace(path, "/leases", "/namespaces/default/leases", 1)
		}
		for _, form := range []string{asJSON, asProtobuf, protoMetadata, asTable} {
			all = append(all, request{path: path, accept: form})
		}
	}
	w.same(t, all...)
}

// testFields asks for objects by their fields.
func (w *world) testFields(t *testing.T) {
	var all []request
	for path, selectors := range map[string][]string{
		pods: {
			"metadata.name=selected", "metadata.name!=selected", "metadata.namespace=default", "metadata.namespace!=default",
			"metadata.name=selected,metadata.name=waiting", "metadata.name=selected,metadata.namespace=ns-00", "metadata.name==waiting",
			"spec.nodeName=n-1", "spec.nodeName=n-1,spec.nodeName=n-2", "spec.nodeName!=n-1", "spec.nodeName=", "spec.nodeName=n-1,metadata.namespace=ns-00",
			"spec.host=n-1", "spec.restartPolicy=Never", "spec.schedulerName=other", "spec.serviceAccountName=builder", "spec.hostNetwork=true",
			"spec.hostNetwork=false", "status.phase=Running", "status.phase!=Running", "status.podIP=10.0.0.1", "status.nominatedNodeName=n-2",
			"status.phase=Pending,spec.nodeName=", "metadata.uid=1", "spec.other=1", "metadata.name", "a=b=c", "metadata.name=a,", "=", "metadata.name>1",
			`metadata.name=a\,b`,
		},
		"/api/v1/namespaces/default/pods": {
			"metadata.namespace=ns-00", "metadata.namespace!=ns-00", "metadata.namespace=default", "metadata.name=selected", "spec.nodeName=n-1", "metadata.name=waiting",
		},
		"/api/v1/nodes":                          {"spec.unschedulable=true", "spec.unschedulable=false", "metadata.name=n-1", "metadata.namespace=", "status.phase=1"},
		"/api/v1/namespaces":                     {"status.phase=Active", "status.phase=Terminating", "metadata.name=default", "name=default"},
		"/api/v1/services":                       {"spec.type=ClusterIP", "spec.clusterIP=None", "spec.type!=ClusterIP", "spec.x=1"},
		"/api/v1/replicationcontrollers":         {"status.replicas=0", "status.replicas=1"},
		"/api/v1/configmaps":                     {"metadata.name=x", "data.a=b"},
		"/apis/apps/v1/replicasets":              {"status.replicas=0", "status.replicas!=0"},
		"/apis/apps/v1/deployments":              {"metadata.name=web", "status.replicas=0"},
		"/apis/batch/v1/jobs":                    {"status.successful=3", "status.successful=0", "status.failed=1"},
		"/apis/storage.k8s.io/v1/storageclasses": {"metadata.name=fast", "provisioner=x"},
		"/api/v1/events": {
			"involvedObject.kind=Pod", "involvedObject.name=web", "involvedObject.namespace=default", "involvedObject.uid=u-1", "involvedObject.apiVersion=v1",
			"involvedObject.fieldPath=spec.containers{c}", "involvedObject.resourceVersion=", "reason=Started", "reason!=Started", "type=Warning",
			"source=kubelet", "source=puller", "reportingComponent=puller", "reportingComponent=", "message=a", "regarding.kind=Pod",
		},
		"/apis/certificates.k8s.io/v1/certificatesigningrequests": {"spec.signerName=a", "spec.x=a"},
		"/apis/resource.k8s.io/v1/resourceslices":                 {"spec.nodeName=a", "spec.driver=a", "spec.pool.name=a", "spec.x=a"},
		"/apis/test.informctl.example/v1/gadgets": {
			"spec.color=red", "spec.color!=red", "spec.size=2", "spec.ready=true", "spec.ready=false", "spec.color=", "spec.ratio=2", "metadata.name=red",
			"metadata.namespace!=default", "spec.color=red,spec.size=1", "spec.color=red,spec.color=blue",
		},
		"/apis/demo.informctl.dev/v1/widgets":                     {"metadata.name=widget-000001", "spec.color=red", "metadata.namespace=default"},
		"/apis/apiextensions.k8s.io/v1/customresourcedefinitions": {"metadata.name=gadgets.test.informctl.example", "spec.group=a"},
	} {
		for _, s := range selectors {
			all = append(all, request{path: path + "?fieldSelector=" + url.QueryEscape(s)})
		}
		all = append(all, request{path: path + "?limit=1&fieldSelector=" + url.QueryEscape(selectors[0]), accept: asProtobuf})
	}
	w.same(t, all...)
}

// testLabels asks for objects by their labels.
func (w *world) testLabels(t *testing.T) {
	var all []request
	for _, s := range []string{
		"app=selected", "app==selected", "app!=selected", "app in (selected,other)", "app notin (selected)", "app", "!app", "example.com/zone=a",
		"app=selected,example.com/zone", "app=selected,!example.com/zone", "app>1", "app gt 1", "app=", "=", "a=b=c", "app in", "app in ()", "-x=1",
		"app=" + strings.Repeat("x", 64), "app=a b", "team=core,tier in (data,edge)",
	} {
		for _, path := range []string{pods, "/api/v1/namespaces/ns-00/pods"} {
			all = append(all, request{path: path + "?labelSelector=" + url.QueryEscape(s)})
		}
	}
	w.same(t, all...)
	for _, form := range []string{asProtobuf, asTable, asYAML, protoMetadata} {
		w.same(t, request{path: pods + "?labelSelector=app%3Dselected", accept: form}, request{path: pods + "?labelSelector=%3D", accept: form})
	}
	w.same(t, request{path: "/apis/test.informctl.example/v1/gadgets?labelSelector=of%3Dtest"},
		request{path: pods + "?labelSelector=app%3Dselected&fieldSelector=status.phase%3DRunning"})
}

// testVersions asks for lists and objects of a resource version.
func (w *world) testVersions(t *testing.T) {
	var all []request
	for _, path := range []string{pods, "/apis/test.informctl.example/v1/gadgets"} {
		rv := w.settle(t, path)
		for _, query := range []string{
			"resourceVersion=", "resourceVersion=0", "resourceVersion=0&limit=1", "resourceVersion=" + rv, "resourceVersion=" + rv + "&limit=1",
			"resourceVersion=" + rv + "&resourceVersionMatch=NotOlderThan", "resourceVersion=" + rv + "&resourceVersionMatch=NotOlderThan&limit=1",
			"resourceVersion=" + rv + "&resourceVersionMatch=Exact", "resourceVersion=" + rv + "&resourceVersionMatch=Exact&limit=1",
			"resourceVersion=0&resourceVersionMatch=NotOlderThan", "resourceVersion=0&resourceVersionMatch=Exact", "resourceVersionMatch=Exact",
			"resourceVersionMatch=NotOlderThan", "resourceVersion=" + rv + "&resourceVersionMatch=Other", "resourceVersion=x",
			"resourceVersion=x&resourceVersionMatch=NotOlderThan", "resourceVersion=x&resourceVersionMatch=Exact", "resourceVersion=-1", "resourceVersion=01",
			"resourceVersion=1&resourceVersionMatch=NotOlderThan", "resourceVersion=1", "resourceVersion=99999999",
			"resourceVersion=99999999&resourceVersionMatch=Exact", "resourceVersion=99999999&limit=1", "resourceVersion=99999999&labelSelector=a%3Db", "limit=x", "limit=-1", "continue=x", "continue=x&resourceVersion=1",
			"continue=x&resourceVersion=0", "continue=x&resourceVersionMatch=Exact", "timeoutSeconds=x", "sendInitialEvents=true",
		} {
			all = append(all, request{path: path + "?" + query})
		}
		// The whole list of a moment is the same, with its resource version.
		exact := request{path: path + "?resourceVersionMatch=Exact&resourceVersion=" + rv}
		server, err := w.server.ask(t.Context(), exact)
		if err != nil {
			t.Fatal(err)
		}
		relay, err := w.relay.ask(t.Context(), exact)
		if err != nil {
			t.Fatal(err)
		}
		if diff := diffBytes(server.body, relay.body); diff != "" {
			t.Errorf("%s:\n%s", exact, diff)
		}
	}
	for _, path := range []string{"/api/v1/namespaces/default/pods/selected", ofCustom + "/red"} {
		for _, query := range []string{"resourceVersion=0", "resourceVersion=1", "resourceVersion=99999999", "resourceVersion=x", "resourceVersion=-1", "pretty=x"} {
			all = append(all, request{path: path + "?" + query}, request{path: path + "?" + query, accept: asTable})
		}
	}
	w.sameAtOnce(t, 64, all) // who asks for a version of the future waits
}

// testPages reads lists page by page: all pages together are the list.
func (w *world) testPages(t *testing.T) {
	for _, path := range []string{pods, "/apis/test.informctl.example/v1/gadgets", "/api/v1/namespaces/default/pods", pods + "?labelSelector=tier%3Ddata"} {
		for _, form := range []string{asJSON, asTable, partialList} {
			tokens := map[string]string{w.server.name: "", w.relay.name: ""}
			sep := "?"
			if strings.Contains(path, "?") {
				sep = "&"
			}
			for page := 0; page == 0 || tokens[w.server.name] != ""; page++ {
				var got []answer
				for _, p := range []peer{w.server, w.relay} {
					query := sep + "limit=7"
					if page > 0 {
						query += "&continue=" + url.QueryEscape(tokens[p.name])
					}
					a, err := p.ask(t.Context(), request{path: path + query, accept: form})
					if err != nil {
						t.Fatal(err)
					}
					tokens[p.name] = continueOf(t, a.body)
					got = append(got, a)
				}
				if diff := diff(request{}, got[0], got[1]); diff != "" {
					t.Fatalf("%s as %s, page %d: %s", path, form, page, diff)
				}
				if (tokens[w.server.name] == "") != (tokens[w.relay.name] == "") {
					t.Fatalf("%s as %s, page %d: continues %q", path, form, page, tokens)
				}
			}
		}
	}
}

// testNothingThere asks for what is not there.
func (w *world) testNothingThere(t *testing.T) {
	var all []request
	for _, path := range []string{
		"/api/v1/namespaces/default/pods/none", "/api/v1/namespaces/none/pods", "/api/v1/namespaces/none", "/api/v1/nodes/none", "/api/v1/none",
		"/api/v1/namespaces/default/none", "/api/v1/namespaces/default/none/x", "/api/v2/pods", "/apis/none/v1/x", "/apis/apps/v2/deployments", "/apis/apps/v1/none",
		"/api/v1/namespaces/default/nodes", "/api/v1/namespaces/default/nodes/n-1", "/api/v1/pods/selected", "/apis/test.informctl.example/v1/none",
		"/apis/test.informctl.example/v1/namespaces/default/none", ofCustom + "/none", "/apis/test.informctl.example/v1/namespaces/default/things",
		"/apis/test.informctl.example/v1/gadgets/red", "/apis/test.informctl.example/v2/gadgets", "/none", "/", "/api/v1/namespaces/default/namespaces",
		"/apis/none", "/apis/apps/v2", "/apis/none/v1", "/api/v2", "/apis/test.informctl.example/v7", "/api/v1/namespaces/default/pods/", "/api/v1/pods/",
		"/api/v1//pods", "/api/v1/namespaces//pods", "/openapi/v3/none", "/openapi/v4",
	} {
		for _, form := range []string{"", asProtobuf, asTable} {
			all = append(all, request{path: path, accept: form})
		}
	}
	w.same(t, all...)
}
