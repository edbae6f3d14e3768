package pagefile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

const (
	elementSize      = 16
	bucketHeaderSize = 16
	flagBucket       = 0x01 // of a leaf element: its value is a bucket
)

// errShort indicates that the bytes end before the length that they specify.
var errShort = errors.New("cut short")

// pageWalk checks what bbolt trusts without a check and no checksum covers: that every
// page is used once, that the freelist contains no used page, and that keys are where a
// search expects them. A later commit would overwrite a page that is free by mistake. A
// branch with a wrong key hides objects from a search although a walk over all objects
// finds them. bbolt's own check is not used because it runs in its own goroutine, whose
// panics cannot be recovered.
type pageWalk struct {
	f        io.ReaderAt
	pageSize int
	used     []bool                            // by page id
	passes   func(depth int, name []byte) bool // see Check.Passes
	depth    int                               // of the walked bucket; 0: root
	unused   []walkedPage
}

// walkedPage is the memory for a page and its elements. A walk reuses it.
type walkedPage struct {
	bytes    []byte
	elements []element
}

// checkPages checks the pages. If passes is nil, it also checks that no page is both used
// and free.
func checkPages(f io.ReaderAt, pageSize int, m *Meta, passes func(depth int, name []byte) bool) error {
	w := &pageWalk{f: f, pageSize: pageSize, used: make([]bool, m.Pages), passes: passes}
	if err := w.walk(m.Root, nil, nil); err != nil || passes != nil {
		return err
	}
	return w.freelist(m.Freelist)
}

// CheckBucket checks the pages of one bucket of an open file before a reader searches it.
func CheckBucket(f io.ReaderAt, root uint64) error {
	m, pageSize := NewestMeta(f)
	if m == nil {
		return errors.New("meta pages are gone")
	}
	if root == 0 {
		return nil // the bucket is inside its parent's page
	}
	w := &pageWalk{f: f, pageSize: pageSize, used: make([]bool, m.Pages)}
	return w.walk(root, nil, nil)
}

// read returns a page with its overflow pages and marks them as used. It uses buf if buf
// is long enough.
func (w *pageWalk) read(id uint64, buf []byte) (page []byte, err error) {
	total := uint64(len(w.used))
	if id < 2 || id >= total {
		return nil, fmt.Errorf("page %d of %d", id, total)
	}
	page = slices.Grow(buf[:0], w.pageSize)[:w.pageSize]
	if _, err := w.f.ReadAt(page, int64(id)*int64(w.pageSize)); err != nil {
		return nil, err
	}
	if got := binary.LittleEndian.Uint64(page); got != id {
		return nil, fmt.Errorf("page %d says it is page %d", id, got)
	}
	end := id + 1 + uint64(binary.LittleEndian.Uint32(page[12:]))
	if end > total {
		return nil, fmt.Errorf("page %d goes on behind the last one", id)
	}
	for p := id; p < end; p++ {
		if w.used[p] {
			return nil, fmt.Errorf("page %d is used twice", p)
		}
		w.used[p] = true
	}
	if size := int(end-id) * w.pageSize; size > w.pageSize {
		page = slices.Grow(page, size-w.pageSize)[:size]
		_, err = w.f.ReadAt(page[w.pageSize:], int64(id+1)*int64(w.pageSize))
	}
	return page, err
}

// walk checks a page and all pages below it. The first key must be low, the key in the
// parent: bbolt takes a page's key from the page and then replaces the parent's element
// of that key. All keys must be less than high. nil means no bound.
func (w *pageWalk) walk(id uint64, low, high []byte) error {
	var memory walkedPage
	if n := len(w.unused); n > 0 {
		memory, w.unused = w.unused[n-1], w.unused[:n-1]
	}
	page, err := w.read(id, memory.bytes)
	if err != nil {
		return err
	}
	elements, branch, err := parsePage(page, memory.elements)
	defer func() { w.unused = append(w.unused, walkedPage{page, elements}) }()
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if low != nil && (len(elements) == 0 || !bytes.Equal(elements[0].key, low)) {
		return fmt.Errorf("page %d does not begin as its parent says", id)
	}
	for i, e := range elements {
		if high != nil && bytes.Compare(e.key, high) >= 0 {
			return fmt.Errorf("page %d has a key of another page", id)
		}
		switch {
		case branch:
			next := high
			if i+1 < len(elements) {
				next = elements[i+1].key
			}
			err = w.walk(e.child, e.key, next)
		case e.bucket:
			err = w.bucket(e.key, e.value)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// bucket checks the value of a bucket: the id of its root page or, after 16 bytes, an
// inline page.
func (w *pageWalk) bucket(name, value []byte) error {
	if len(value) < bucketHeaderSize {
		return errShort
	}
	if root := binary.LittleEndian.Uint64(value); root != 0 {
		if w.passes != nil && w.passes(w.depth, name) {
			return w.branches(root)
		}
		w.depth++
		defer func() { w.depth-- }()
		return w.walk(root, nil, nil)
	}
	elements, branch, err := parsePage(value[bucketHeaderSize:], nil)
	if err != nil {
		return fmt.Errorf("inline bucket: %w", err)
	}
	for _, e := range elements {
		if branch || e.bucket {
			return errors.New("inline bucket with pages below it")
		}
	}
	return nil
}

// branches checks the branch pages of a bucket whose leaves are not read: bbolt would
// follow pages that go around until the memory ends. All leaves are at the same depth.
func (w *pageWalk) branches(root uint64) error {
	below := 0
	for id := root; ; below++ {
		if below == maxHeight {
			return fmt.Errorf("more than %d pages lead down from page %d", maxHeight, root)
		}
		child, err := w.firstChild(id)
		if err != nil {
			return err
		}
		if child == 0 {
			return w.branch(root, below)
		}
		id = child
	}
}

// maxHeight is more than the height of any tree of pages: one of height 16 whose pages
// have two elements each has 65,536 leaves.
const maxHeight = 16

// firstChild returns the id of the first page below a page, 0 for a leaf.
func (w *pageWalk) firstChild(id uint64) (child uint64, err error) {
	mine := &pageWalk{f: w.f, pageSize: w.pageSize, used: make([]bool, len(w.used))}
	page, err := mine.read(id, nil)
	if err != nil {
		return 0, err
	}
	elements, branch, err := parsePage(page, nil)
	if err != nil {
		return 0, fmt.Errorf("page %d: %w", id, err)
	}
	if branch {
		child = elements[0].child
	}
	return child, nil
}

// branch checks a page and those below it, but for the leaves. below is how many pages
// lead from it to a leaf.
func (w *pageWalk) branch(id uint64, below int) error {
	if below == 0 {
		if id < 2 || id >= uint64(len(w.used)) {
			return fmt.Errorf("page %d of %d", id, len(w.used))
		}
		if w.used[id] {
			return fmt.Errorf("page %d is used twice", id)
		}
		w.used[id] = true
		return nil
	}
	page, err := w.read(id, nil)
	if err != nil {
		return err
	}
	elements, branch, err := parsePage(page, nil)
	if err == nil && !branch {
		err = errors.New("a leaf among branches")
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	for _, e := range elements {
		if err := w.branch(e.child, below-1); err != nil {
			return err
		}
	}
	return nil
}

// freelist checks that no page is both free and used.
func (w *pageWalk) freelist(id uint64) error {
	page, err := w.read(id, nil)
	if err != nil {
		return err
	}
	ids, count := page[pageHeaderSize:], uint64(binary.LittleEndian.Uint16(page[10:]))
	if count == 0xFFFF { // the count does not fit into the header
		count, ids = binary.LittleEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return fmt.Errorf("freelist of %d pages", count)
	}
	for i := range count {
		free := binary.LittleEndian.Uint64(ids[8*i:])
		if free < 2 || free >= uint64(len(w.used)) || w.used[free] {
			return fmt.Errorf("page %d is in the freelist", free)
		}
		w.used[free] = true
	}
	return nil
}

// element is an entry of a page. An element of a branch has a child, one of a leaf a
// value.
type element struct {
	key, value []byte
	child      uint64
	bucket     bool
}

// parsePage returns the elements of a branch or leaf page and checks that their keys
// ascend. It uses buf if buf is long enough.
func parsePage(page []byte, buf []element) (elements []element, branch bool, err error) {
	if len(page) < pageHeaderSize {
		return nil, false, errShort
	}
	flags, count := binary.LittleEndian.Uint16(page[8:]), int(binary.LittleEndian.Uint16(page[10:]))
	branch = flags == flagBranch
	if !branch && flags != flagLeaf || branch && count == 0 {
		return nil, false, errors.New("of another kind")
	}
	if pageHeaderSize+count*elementSize > len(page) {
		return nil, false, errShort
	}
	elements = slices.Grow(buf[:0], count)[:count]
	for i := range elements {
		at := pageHeaderSize + i*elementSize
		b := page[at:]
		elements[i] = element{}
		e := &elements[i]
		var pos, keySize, valueSize uint64
		if branch {
			pos, keySize = uint64(binary.LittleEndian.Uint32(b)), uint64(binary.LittleEndian.Uint32(b[4:]))
			e.child = binary.LittleEndian.Uint64(b[8:])
		} else {
			e.bucket = binary.LittleEndian.Uint32(b)&flagBucket != 0
			pos, keySize = uint64(binary.LittleEndian.Uint32(b[4:])), uint64(binary.LittleEndian.Uint32(b[8:]))
			valueSize = uint64(binary.LittleEndian.Uint32(b[12:]))
		}
		if pos+keySize+valueSize > uint64(len(b)) {
			return nil, false, errors.New("an element goes on behind the page")
		}
		e.key, e.value = b[pos:pos+keySize], b[pos+keySize:pos+keySize+valueSize]
		if i > 0 && bytes.Compare(elements[i-1].key, e.key) >= 0 {
			return nil, false, errors.New("keys do not ascend")
		}
	}
	return elements, branch, nil
}
