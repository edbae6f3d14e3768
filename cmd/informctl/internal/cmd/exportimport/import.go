package exportimport

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/informctl/informctl/cmd/informctl/internal/cmdutil"
	"github.com/informctl/informctl/cmd/informctl/internal/source"
	"github.com/informctl/informctl/codec"
	"github.com/informctl/informctl/index"
	"github.com/informctl/informctl/internal/secret"
	"github.com/informctl/informctl/internal/space"
	"github.com/informctl/informctl/store"
	"github.com/informctl/informctl/store/bolt"
)

// NewImportCommand returns import.
func NewImportCommand(e cmdutil.Env) *cobra.Command {
	var file source.FileFlags
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Make a file of what export printed",
		Long: cmdutil.Describe(`Make a file of what export printed; FILE "-" is standard input.

The file that --db names must not be there. It appears when it is whole. Its indexes
are made anew, those of an informer's own functions when that opens it. It is as old as
what was exported. A run resumes from its resource version, except that it lists again
what was written with other versions of the Go types, which may lack fields, or exported
by an informctl that did not say with which, and Secrets whose values were left out: they
have no data then, and an informer does not serve them. Secrets need a key to encrypt
them with. A line has at most 64 MiB.`),
		Example: `  informctl export | informctl import - --db copy.db
  informctl import informers.jsonl --db new.db`,
		Args: cmdutil.OneArgument("FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := cmdutil.Interruptible(cmd.Context())
			defer stop()
			return runImport(ctx, e, file, args[0])
		},
	}
	file.Add(e, cmd)
	return cmd
}

func runImport(ctx context.Context, e cmdutil.Env, file source.FileFlags, from string) (err error) {
	in := e.Streams.In
	if from != "-" {
		f, err := os.Open(from)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		in = f
	} else {
		from = "standard input"
	}
	if err := file.MakeDir(); err != nil {
		return err
	}
	lines := interruptible(ctx, in)
	defer func() { _ = lines.Close() }()
	objects, unknown := 0, 0
	err = source.NewFile(file.Path, func(temporary string) error {
		db, err := source.OpenToWrite(temporary, file.Keys)
		if err != nil {
			return source.OpenError(file.Path, err)
		}
		i := &importer{env: e, ctx: ctx, db: db, dir: filepath.Dir(temporary), meter: e.NewMeter("importing", "objects", 0)}
		defer i.meter.Stop()
		err = i.read(lines, from)
		objects, unknown = i.objects, i.unknown
		return errors.Join(err, i.close())
	})
	if err != nil {
		return err
	}
	if unknown > 0 {
		e.Note("the server of the export was newer than the types of this program: %s, of %d objects", cmdutil.FieldsLeftOut, unknown)
	}
	e.Note("%s: %d objects", file.Path, objects)
	return nil
}

// close closes the file. It also returns an error if scopes were lost with the file after
// they were written, of which their Close and that of the database know nothing.
func (i *importer) close() error {
	err := i.db.Close()
	if err == nil && i.db.LedgerLosses() > 0 {
		err = errors.New("the new file was removed or damaged while it was written; import it again")
	}
	return err
}

// interruptible returns a reader of in that ends with ctx, also while in has nothing. A
// read of in may outlive it. The caller must close it.
func interruptible(ctx context.Context, in io.Reader) *io.PipeReader {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { _ = w.CloseWithError(ctx.Err()) })
	go func() {
		_, err := io.Copy(w, in)
		_ = w.CloseWithError(err)
	}()
	return r
}

// importer reads the lines of an export into a new file.
type importer struct {
	env     cmdutil.Env
	ctx     context.Context
	db      *bolt.DB
	meter   *cmdutil.Meter
	objects int

	// The scope that is being read. store is nil before the first scope.
	header exportHeader // the last one, also while store is nil
	store  store.Store
	list   store.Relist
	types  string // the fingerprint of its codec
	decode func(line []byte) (runtime.Object, error)
	added  int

	dir       string // of the file
	unchecked int    // bytes that were read since the space was checked

	unknown int // objects with fields that their types do not have
}

func (i *importer) read(in io.Reader, name string) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	for number := 1; ; number++ {
		line, err := readLine(lines)
		if errors.Is(err, errLongLine) {
			return fmt.Errorf("%s, line %d: %w", name, number, err)
		}
		if i.ctx.Err() != nil {
			return cmdutil.ErrInterrupted
		}
		if err != nil && !errors.Is(err, io.EOF) {
			if file := (*fs.PathError)(nil); errors.As(err, &file) {
				err = file.Err // the PathError also names the file
			}
			return fmt.Errorf("read %s: %w", name, err)
		}
		ended := err != nil
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := i.line(line); err != nil {
				return fmt.Errorf("%s, line %d: %w", name, number, err)
			}
		}
		if !ended {
			continue
		}
		if i.store == nil {
			return fmt.Errorf("%s is empty; want what informctl export prints", name)
		}
		if err = i.finish(); err == nil && i.header.Following > 0 {
			err = fmt.Errorf("%d scopes are missing: the export is not whole", i.header.Following)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	}
}

// stride is the number of bytes after which the space is checked again.
const stride = 1 << 20

// maxLine is the number of bytes in a line. No API server takes so large an object.
const maxLine = 64 << 20

var errLongLine = fmt.Errorf("longer than %d MiB, which no object is", maxLine>>20)

// readLine returns the next line. Its error is errLongLine if that has more than maxLine
// bytes.
func readLine(r *bufio.Reader) (line []byte, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if len(line)+len(part) > maxLine {
			return nil, errLongLine
		}
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func (i *importer) line(line []byte) error {
	if bytes.HasPrefix(line, []byte(`{"informctlExport":`)) {
		return i.begin(line)
	}
	if i.store == nil {
		return errors.New("not the header of an export; want what informctl export prints")
	}
	obj, err := i.decode(line)
	if other := (*kindError)(nil); errors.As(err, &other) {
		return other
	}
	if err != nil {
		// err is not wrapped: it may contain parts of the object.
		return fmt.Errorf("not an object of %s in JSON", i.header.Scope.Resource)
	}
	if m, err := meta.Accessor(obj); err != nil || m.GetName() == "" {
		return errors.New("an object without a name")
	}
	if i.unchecked += len(line); i.unchecked >= stride {
		i.unchecked = 0
		if err := space.Check(i.dir, stride); err != nil {
			return err
		}
	}
	if err := i.list.Add(obj); err != nil {
		return err
	}
	i.added++
	i.objects++
	i.meter.Set(i.objects)
	return nil
}

// kindError reports an object that is not of its scope.
type kindError struct {
	is    schema.GroupKind
	scope store.Scope
}

func (e *kindError) Error() string {
	return fmt.Sprintf("an object of kind %s among those of %s, which are of kind %s", e.is, e.scope.Resource, e.scope.Kind.GroupKind())
}

// begin ends the previous scope and opens the next one.
func (i *importer) begin(line []byte) error {
	if err := i.finish(); err != nil {
		return err
	}
	isFirst, before := i.store == nil, i.header.Following
	i.header, i.added = exportHeader{}, 0
	if err := json.Unmarshal(line, &i.header); err != nil {
		return errors.New("not the header of an export")
	}
	if n := i.missing(isFirst, before); n > 0 {
		return fmt.Errorf("%d scopes are missing before it: the export is not whole", n)
	}
	if i.header.Export != exportFormat {
		return fmt.Errorf("an export of format %d; this program reads format %d", i.header.Export, exportFormat)
	}
	scope, err := i.header.Scope.Scope()
	if err != nil {
		return err
	}
	options, err := i.options(scope)
	if err != nil {
		return err
	}
	i.types = options.Codec.Fingerprint()
	if i.store, err = i.db.Open(scope, options); err != nil {
		return err
	}
	i.list, err = i.store.Relist()
	return err
}

// missing returns how many scopes are missing between the last header, which before
// scopes follow, and this one. Another export may follow a whole one.
func (i *importer) missing(isFirst bool, before int) int {
	if isFirst || before == 0 {
		return i.header.Preceding
	}
	return before - 1 - i.header.Following
}

// stripped marks the transform of Secrets that were imported without their values: an
// informer of any other transform does not serve them.
const stripped = "without the values of Secrets"

func isStripped(transform string) bool { return strings.HasSuffix(transform, stripped) }

// transform returns the TransformVersion of the scope.
func (i *importer) transform() string {
	version := i.header.Scope.Transform
	if i.header.Redacted && !isStripped(version) {
		version += stripped
	}
	return version
}

// withoutRedacted returns a line without what stands for the values of a Secret.
func withoutRedacted(line []byte) ([]byte, error) {
	var content map[string]any
	if err := json.Unmarshal(line, &content); err != nil {
		return nil, err
	}
	secret.Strip(content)
	return json.Marshal(content)
}

// options returns the codec and the indexes of a scope, and sets i.decode.
func (i *importer) options(scope store.Scope) (options store.Options, err error) {
	example := func() runtime.Object { return &unstructured.Unstructured{} }
	switch {
	case scope.Form == store.Metadata:
		example = func() runtime.Object { return &metav1.PartialObjectMetadata{} }
	case scope.Form == store.Typed && scheme.Scheme.Recognizes(scope.Kind):
		example = func() runtime.Object {
			obj, _ := scheme.Scheme.New(scope.Kind) // the scheme recognizes the kind
			return obj
		}
	}
	i.decode = func(line []byte) (runtime.Object, error) {
		obj := example()
		var err error
		if i.header.Redacted {
			if line, err = withoutRedacted(line); err != nil {
				return nil, err
			}
		}
		err = json.Unmarshal(line, obj)
		if is := obj.GetObjectKind().GroupVersionKind(); err == nil && scope.Form != store.Metadata && scope.Kind.Kind != "" &&
			!is.Empty() && is.GroupKind() != scope.Kind.GroupKind() {
			return nil, &kindError{is.GroupKind(), scope}
		}
		if _, ok := obj.(runtime.Unstructured); !ok {
			strict := stdjson.NewDecoder(bytes.NewReader(line))
			strict.DisallowUnknownFields()
			if err == nil && strict.Decode(example()) != nil {
				i.unknown++
			}
			// export has set the kind.
			obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
		}
		return obj, err
	}
	options.TransformVersion = i.transform()
	if options.Codec, err = codec.For(example()); err != nil {
		return options, err
	}
	for _, idx := range i.header.Scope.Indexes {
		known, err := index.Parse(idx.Name)
		if err != nil || known.Identity() != idx.Identity {
			i.env.Note("%s: index %q is left out: its function is an informer's own", scope, idx.Name)
			continue
		}
		options.Indexes = append(options.Indexes, known)
	}
	return options, nil
}

// finish writes the scope that was read if all of its objects were read.
func (i *importer) finish() error {
	if i.store == nil {
		return nil
	}
	want := i.header.Scope
	if i.added != want.Objects {
		return fmt.Errorf("%d objects of %s, not %d: the export is not whole", i.added, want.Resource, want.Objects)
	}
	rv, reason := want.ResourceVersion, want.Reason
	// As long as these objects do not change, no watch would fill in what they lack.
	switch {
	case i.header.Redacted:
		rv, reason = "", "imported "+stripped
	case rv == "":
	case i.header.TypeFingerprint == "":
		rv, reason = "", "exported without the versions of the types"
	case i.header.TypeFingerprint != i.types:
		rv, reason = "", "exported with other versions of the types"
	}
	var set time.Time
	if want.Time != nil && want.Time.Before(time.Now()) {
		set = *want.Time
	}
	for batch, err := range i.list.Parts(rv) {
		if batch.Time = set; err == nil {
			err = i.store.Apply(batch)
		}
		if err != nil {
			return err
		}
	}
	err := i.list.Close()
	if err == nil && rv == "" {
		err = i.store.Apply(store.Batch{Reason: cmp.Or(reason, "imported without a resource version"), Time: set})
	}
	// Close writes what waits. Unlike Flush it gives up on a full disk.
	return errors.Join(err, i.store.Close())
}
