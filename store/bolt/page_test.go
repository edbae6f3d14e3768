package bolt_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
)

// The parts of bbolt's page format that tests need to damage pages.
const (
	pageBranch   = 0x01
	pageLeaf     = 0x02
	pageFreelist = 0x10
)

var pageSize = os.Getpagesize()

// newestMetaOf returns the meta page with the higher transaction ID.
func newestMetaOf(b []byte) []byte {
	first, second := b[16:], b[pageSize+16:]
	if binary.LittleEndian.Uint64(second[48:]) > binary.LittleEndian.Uint64(first[48:]) {
		return second
	}
	return first
}

func highWater(b []byte) uint64 { return binary.LittleEndian.Uint64(newestMetaOf(b)[40:]) }

func freelistPage(b []byte) int { return int(binary.LittleEndian.Uint64(newestMetaOf(b)[32:])) }

func rootPage(b []byte) int { return int(binary.LittleEndian.Uint64(newestMetaOf(b)[16:])) }

// freePages returns the pages in the freelist.
func freePages(b []byte) map[int]bool {
	page := b[freelistPage(b)*pageSize:]
	free := map[int]bool{}
	for i := range int(binary.LittleEndian.Uint16(page[10:])) {
		free[int(binary.LittleEndian.Uint64(page[16+8*i:]))] = true
	}
	return free
}

// usedPages returns the pages of a kind that are in use.
func usedPages(b []byte, kind uint16) (pages []int) {
	free := freePages(b)
	for id := 2; id < int(highWater(b)); id++ {
		page := b[id*pageSize:]
		if binary.LittleEndian.Uint16(page[8:])&kind != 0 && binary.LittleEndian.Uint64(page) == uint64(id) && !free[id] {
			pages = append(pages, id)
		}
	}
	return pages
}

// misfreed returns a file whose freelist contains the root page instead of a free page.
func misfreed(b []byte) []byte {
	b = bytes.Clone(b)
	page := b[freelistPage(b)*pageSize:]
	if binary.LittleEndian.Uint16(page[10:]) == 0 {
		binary.LittleEndian.PutUint16(page[10:], 1)
	}
	binary.LittleEndian.PutUint64(page[16:], uint64(rootPage(b)))
	return b
}

// misordered returns a file in which a branch page leads a key to the wrong leaf.
func misordered(t *testing.T) []byte {
	t.Helper()
	b := healthy(t)
	for _, id := range usedPages(b, pageBranch) {
		page := b[id*pageSize:]
		element := page[16+16:] // the second one
		at := 16 + 16 + int(binary.LittleEndian.Uint32(element)) + int(binary.LittleEndian.Uint32(element[4:])) - 1
		page[at] ^= 0x0C
		return b
	}
	t.Fatal("the file has no branch page")
	return nil
}

// unbucketed returns a file in which a scope is a key instead of a bucket.
func unbucketed(t *testing.T, b []byte) []byte {
	t.Helper()
	b = bytes.Clone(b)
	id := []byte(scriptScope().ID())
	for _, leaf := range usedPages(b, pageLeaf) {
		page := b[leaf*pageSize:]
		for i := range int(binary.LittleEndian.Uint16(page[10:])) {
			element := page[16+16*i:]
			at := 16 + 16*i + int(binary.LittleEndian.Uint32(element[4:]))
			if n := int(binary.LittleEndian.Uint32(element[8:])); bytes.Equal(page[at:at+n], id) {
				binary.LittleEndian.PutUint32(element, 0)
				return b
			}
		}
	}
	t.Fatal("the file has no scope")
	return nil
}
