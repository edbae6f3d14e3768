package relay_test

import (
	"bytes"
	"fmt"
	"reflect"
	"regexp"
	"sync/atomic"
)

// difference is what is different in the answers to some requests, and why.
type difference struct {
	of         *regexp.Regexp // the request, as its String has it
	why        string
	code, ours int    // what the server answers, and what informctl; 0 is anything
	text       string // in the answer of informctl
	// isSame means that both are the same JSON, but for the order of fields and the kinds
	// of items.
	isSame bool
	found  atomic.Bool
}

// differences are all of them, beside what is left out of all answers: see leftOut.
var differences = []*difference{
	{
		of:  regexp.MustCompile(`^/apis/api(extensions|registration)\.k8s\.io/v1/\S+( application/yaml| \*/\*| application/json|)$`),
		why: "informctl has no Go type of the kind and holds it as a custom resource, whose fields are sorted", code: 200, ours: 200, text: "kind", isSame: true,
	},
	{
		of:  regexp.MustCompile(`^/apis/api(extensions|registration)\.k8s\.io/v1/\S+ application/json;as=Table\S+$`),
		why: "fields of such a kind are sorted, also in Tables", code: 200, ours: 200, text: "Table",
	},
	{
		of:  regexp.MustCompile(`^/apis/api(extensions|registration)\.k8s\.io/v1/\S+ application/vnd\.kubernetes\.protobuf$`),
		why: "such a kind has no protobuf", code: 200, ours: 406, text: "media types",
	},
	{
		of:  regexp.MustCompile(`^/apis/api(extensions|registration)\.k8s\.io/v1/\S+ application/vnd\.kubernetes\.protobuf,application/json$`),
		why: "such a kind has no protobuf", code: 200, ours: 200, text: `"kind"`,
	},
	{
		of:  regexp.MustCompile(`^/apis/flowcontrol\.apiserver\.k8s\.io/v1/flowschemas application/json;as=Table\S+$`),
		why: "the server sorts the rows of FlowSchemas by their precedence", code: 200, ours: 200, text: "MatchingPrecedence",
	},
	{
		of:  regexp.MustCompile(` (application/cbor|text/html)$`),
		why: "a gateway in the server has the text", code: 406, ours: 406, text: "only the following media types are accepted",
	},
	{
		of:  regexp.MustCompile(`gadgets/red\S* \S*as=PartialObjectMetadataList`),
		why: "the server fails", code: 500, ours: 406, text: "is not a list",
	},
	{
		of:  regexp.MustCompile(` \S*as=PartialObjectMetadata(List)?;`),
		why: "the text has the name of a type", code: 406, ours: 406, text: "you requested PartialObjectMetadata",
	},
	{
		of:  regexp.MustCompile(`daemonsets \S*as=`),
		why: "the server takes the annotation deprecated.daemonset.template.generation out of the metadata", code: 200, ours: 200, text: "deprecated.daemonset",
	},
	{
		of:  regexp.MustCompile(`(/(selected|red)\?|watch=1\S*)resourceVersion=(x|-1)`),
		why: "the server fails", code: 500, ours: 400, text: "invalid resource version",
	},
	{
		of:  regexp.MustCompile(`^(POST|PUT|PATCH|DELETE) `),
		why: "nothing can be changed", code: 0, ours: 405, text: "ask the API server",
	},
	{
		of:  regexp.MustCompile(`/(status|scale|log|proxy|token|ephemeralcontainers)$`),
		why: "subresources are not held", code: 0, ours: 405, text: "ask the API server",
	},
	{
		of:  regexp.MustCompile(`secrets`),
		why: "secrets are not stored without a key", code: 0, ours: 403, text: "informctl does not hold it",
	},
	{
		of:  regexp.MustCompile(`componentstatuses|events\.k8s\.io`),
		why: "what cannot be watched, or is there under another name, is not held", code: 200, ours: 403, text: "informctl does not hold it",
	},
	{
		of:  regexp.MustCompile(`things$`),
		why: "one version of a resource is held", code: 200, ours: 403, text: "informctl holds another version of it",
	},
	{
		of:  regexp.MustCompile(`^/api$`),
		why: "the address of the server is not told", code: 200, ours: 200, text: `"versions":["v1"]`,
	},
	{
		of:  regexp.MustCompile(`^/apis$`),
		why: "groups have the versions that are held, or that nothing is held of", code: 200, ours: 200, text: `"groupVersion":"autoscaling/v2"`,
	},
	{
		of:  regexp.MustCompile(`^/openapi/v3$`),
		why: "the server says that it is a text", code: 200, ours: 200, text: `"serverRelativeURL"`,
	},
	{
		of:  regexp.MustCompile(`^/openapi/v2`),
		why: "clients since 1.27 ask for the third version", code: 200, ours: 404, text: "NotFound",
	},
	{
		of:  regexp.MustCompile(`^/( |$)`),
		why: "there is no list of paths", code: 200, ours: 404, text: "NotFound",
	},
	{
		of:  regexp.MustCompile(`^/(none|openapi/v|apis/none|apis/test\.informctl\.example)`),
		why: "the server has a text, or nothing, where informctl has a Status", code: 404, ours: 404, text: "NotFound",
	},
}

// differenceOf returns the difference that answers have, nil if there is none in the
// table.
func differenceOf(r request, server, relay answer) *difference {
	for _, d := range differences {
		if d.of.MatchString(r.String()) && (d.code == 0 || server.code == d.code) && relay.code == d.ours {
			d.found.Store(true)
			return d
		}
	}
	return nil
}

// check returns what is wrong: the answers have to be as the table says.
func (d *difference) check(server, relay answer) string {
	switch {
	case !bytes.Contains(relay.body, []byte(d.text)):
		return fmt.Sprintf("%s: want %q in %s", d.why, d.text, relay)
	case d.isSame && !reflect.DeepEqual(content(server), content(relay)):
		return fmt.Sprintf("the server has another content:\n%s\ninformctl\n%s", server, relay)
	}
	return ""
}
