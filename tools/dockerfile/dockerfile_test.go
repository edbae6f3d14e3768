package dockerfile_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/client/llb"
	"github.com/moby/buildkit/client/llb/sourceresolver"
	"github.com/moby/buildkit/frontend/dockerfile/dockerfile2llb"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
	"github.com/moby/buildkit/solver/pb"
	"github.com/opencontainers/go-digest"
)

const path = "../../deploy/Dockerfile"

func read(t *testing.T) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// images answers for every image that it is there and says nothing of itself.
type images struct{}

func (images) ResolveImageConfig(_ context.Context, ref string, _ sourceresolver.Opt) (string, digest.Digest, []byte, error) {
	config := []byte(`{"architecture":"amd64","os":"linux","rootfs":{"type":"layers"},"config":{}}`)
	return ref, digest.FromBytes(config), config, nil
}

// lint returns what the linter finds.
func lint(t *testing.T, dockerfile []byte) (findings []string) {
	t.Helper()
	caps := pb.Caps.CapSet(pb.Caps.All())
	results, err := dockerfile2llb.DockerfileLint(t.Context(), dockerfile, dockerfile2llb.ConvertOpt{
		MetaResolver: images{}, LLBCaps: &caps,
		SourceMap: &llb.SourceMap{Filename: path, Data: dockerfile, Definition: &llb.Definition{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if results.Error != nil {
		findings = append(findings, results.Error.Message)
	}
	for _, w := range results.Warnings {
		findings = append(findings, w.RuleName+": "+w.Detail)
	}
	return findings
}

// TestLint: nothing is found.
func TestLint(t *testing.T) {
	for _, finding := range lint(t, read(t)) {
		t.Errorf("%s: %s", path, finding)
	}
}

// TestLintFinds: the linter does find what it is to find.
func TestLintFinds(t *testing.T) {
	for want, of := range map[string][2]string{
		"unknown instruction":         {"USER 65532", "USR 65532"},
		"JSONArgsRecommended":         {`ENTRYPOINT ["/usr/local/bin/informctl"]`, "ENTRYPOINT informctl"},
		"UndefinedVar":                {"COPY . .", "COPY $SUORCE ."},
		"FromAsCasing":                {"AS build", "as build"},
		"WorkdirRelativePath":         {"WORKDIR /src", "WORKDIR src"},
		"LegacyKeyValueFormat":        {"USER 65532:65532", "ENV A b"},
		"ConsistentInstructionCasing": {"USER 65532:65532", "user 65532:65532"},
	} {
		dockerfile := strings.Replace(string(read(t)), of[0], of[1], 1)
		if found := strings.Join(lint(t, []byte(dockerfile)), "\n"); !strings.Contains(found, want) {
			t.Errorf("%q instead of %q: got %q, want %s", of[1], of[0], found, want)
		}
	}
}

// TestImage: the image has the program that "make build" makes, static, and runs it
// as nobody.
func TestImage(t *testing.T) {
	file, err := parser.Parse(bytes.NewReader(read(t)))
	if err != nil {
		t.Fatal(err)
	}
	stages, _, err := instructions.Parse(file.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(stages) != 2 {
		t.Fatalf("%d stages, want one that builds and one that runs", len(stages))
	}
	var got []string
	for _, stage := range stages {
		for _, cmd := range stage.Commands {
			switch cmd := cmd.(type) {
			case *instructions.RunCommand:
				got = append(got, "run "+strings.Join(cmd.CmdLine, " "))
			case *instructions.UserCommand:
				got = append(got, "user "+cmd.User)
			case *instructions.EntrypointCommand:
				got = append(got, "entrypoint "+strings.Join(cmd.CmdLine, " "))
			}
		}
	}
	want := []string{
		"run GOOS=$TARGETOS GOARCH=$TARGETARCH make build",
		"user 65532:65532",
		"entrypoint /usr/local/bin/informctl",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
	if base := stages[1].BaseName; !strings.HasPrefix(base, "gcr.io/distroless/static-") || !strings.HasSuffix(base, ":nonroot") {
		t.Errorf("it runs on %s, want a static distroless image for nobody", base)
	}
	cmd := exec.CommandContext(t.Context(), "make", "-n", "build")
	cmd.Dir = "../.."
	recipe, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("make -n build: %v\n%s", err, recipe)
	}
	if line := "cd cmd/informctl && CGO_ENABLED=0 go build -trimpath -o ../../bin/informctl ."; !strings.Contains(string(recipe), line+"\n") {
		t.Errorf("make build is\n%s, want %q", recipe, line)
	}
}
