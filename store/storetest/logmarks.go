package storetest

import (
	"strconv"

	"github.com/informctl/informctl/store"
)

func (h *harness) wantStored(want string) {
	h.Helper()
	must(h, h.Flush(h.Context()))
	log, err := h.History()
	must(h, err)
	same(h, "Stored", log.Stored, want)
}

// testLogStored checks up to where nothing has changed since the last mark.
func testLogStored(h *harness) {
	h.logged(configMap("a/one", "1", "red"))
	h.wantStored("10")
	h.apply("15")
	h.wantStored("15")
	h.reopen()
	h.wantStored("15")
	h.apply("", put(configMap("a/one", "16", "blue")))
	h.wantStored("15")
	h.apply("17") // the content is the server's again
	h.wantStored("17")
	h.apply("18", put(configMap("a/one", "18", "red")))
	h.apply("19")
	h.wantStored("19")
	must(h, h.Invalidate(h.Context(), "expired"))
	h.wantStored("19")
	h.apply("", put(configMap("a/one", "20", "blue")))
	h.wantStored("")
}

// testLogStoredAcrossAList checks that who was told the stored resource version can go on
// from it across a list, however that begins, and that nobody else can.
func testLogStoredAcrossAList(h *harness) {
	h.logged(configMap("a/one", "1", "red"))
	expire := []func(rv string){
		func(string) {}, // the list says so itself
		func(string) { must(h, h.Invalidate(h.Context(), "expired")) },
		func(string) { must(h, h.Apply(store.Batch{Reason: "expired"})) },
		func(rv string) {
			must(h, h.Apply(store.Batch{Reason: "expired", Changes: []store.Change{put(configMap("a/new", rv, "red"))}}))
		},
	}
	for i, begin := range expire {
		rv := func(n int) string { return strconv.Itoa(100*(i+1) + n) }
		h.apply(rv(0), put(configMap("a/one", rv(0), "red")), store.Change{Key: "a/new"})
		h.place()
		h.apply(rv(15))
		h.wantStored(rv(15))
		begin(rv(16))
		h.applyParts(h.relist(configMap("a/one", rv(18), "blue")), rv(20))
		h.wantStored(rv(20))
		for _, from := range []string{rv(12), rv(15)} {
			events, err := followed(h.Store, store.Place{RV: from})
			must(h, err)
			state := replay(h, map[string]string{"a/one": rv(0)}, events)
			same(h, "what follows "+from, describeState(state), []string{"a/one@" + rv(18)})
		}
		h.wantAt(store.Place{RV: rv(12)}, "a/one@"+rv(0))
		h.wantAt(store.Place{RV: rv(15)}, "a/one@"+rv(0))
		if _, err := followed(h.Store, store.Place{RV: rv(16)}); i > 0 {
			wantIs(h, "to follow from inside the list", err, store.ErrTrimmed)
		}
	}
}

// testLogReadable checks the newest place that can be read by resource version.
func testLogReadable(h *harness) {
	want := func(want string, objects ...string) {
		h.Helper()
		must(h, h.Flush(h.Context()))
		log, err := h.History()
		must(h, err)
		same(h, "Readable", log.Readable.RV, want)
		if want != "" {
			h.wantAt(log.Readable, objects...)
			h.wantAt(store.Place{RV: log.Readable.RV}, objects...)
		}
	}
	h.begins()
	want("")
	h.listed(configMap("a/one", "1", "red"))
	want("10", "a/one@1")
	h.apply("11", put(configMap("a/one", "11", "blue")))
	want("11", "a/one@11")
	h.apply("", put(configMap("a/one", "12", "red")))
	want("11", "a/one@11")
	h.reopen()
	want("11", "a/one@11")
	h.apply("13", put(configMap("a/one", "13", "red")))
	want("13", "a/one@13")
	h.apply("15")
	must(h, h.Flush(h.Context()))
	must(h, h.Invalidate(h.Context(), "expired"))
	want("15", "a/one@13")
	h.apply("", put(configMap("a/two", "16", "red")))
	want("15", "a/one@13")
	h.applyParts(h.relist(configMap("a/two", "16", "red")), "20")
	want("20", "a/two@16")
	must(h, h.Apply(store.Batch{Reason: "history was rewound", Rewound: true}))
	want("")
}
