// Command conformance runs Kubernetes' own end-to-end tests: test/e2e of the pinned release.
//
//	conformance --kubeconfig FILE --ginkgo.focus REGEX --report-dir FOLDER
//	conformance --list-conformance-tests
//
// Its flags are those of e2e.test. It differs in two points: it is built by `go build`, as our other programs are, and it
// has only the packages with conformance tests. The second form writes the names of the release's conformance tests that
// this program has, one a line, and fails if the release lists one that it has not.
//
// Source: Kubernetes, test/e2e/e2e_test.go; "Conformance Testing in Kubernetes".
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2"
	"k8s.io/component-base/version"
	conformancedata "k8s.io/kubernetes/test/conformance/testdata"
	"k8s.io/kubernetes/test/e2e"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"
	fixtures "k8s.io/kubernetes/test/fixtures"
	"sigs.k8s.io/yaml"

	_ "k8s.io/kubernetes/test/e2e/feature"

	_ "k8s.io/kubernetes/test/e2e/apimachinery"
	_ "k8s.io/kubernetes/test/e2e/apps"
	_ "k8s.io/kubernetes/test/e2e/architecture"
	_ "k8s.io/kubernetes/test/e2e/auth"
	_ "k8s.io/kubernetes/test/e2e/common"
	_ "k8s.io/kubernetes/test/e2e/dra"
	_ "k8s.io/kubernetes/test/e2e/instrumentation"
	_ "k8s.io/kubernetes/test/e2e/kubectl"
	_ "k8s.io/kubernetes/test/e2e/network"
	_ "k8s.io/kubernetes/test/e2e/node"
	_ "k8s.io/kubernetes/test/e2e/scheduling"
	_ "k8s.io/kubernetes/test/e2e/storage"

	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/utils/format"
)

const register = "test/conformance/testdata/conformance.yaml"

func main() {
	showVersion := flag.Bool("version", false, "Display the version and exit.")
	list := flag.Bool("list-conformance-tests", false, "Write the names of the conformance tests and exit.")
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	testfiles.AddFileSource(fixtures.GetTestFixturesFS())
	testfiles.AddFileSource(conformancedata.GetConformanceTestdataFS())
	switch {
	case flag.NArg() > 0:
		exit(fmt.Errorf("unknown arguments: %q", flag.Args()))
	case *showVersion:
		fmt.Println(version.Get().GitVersion)
	case *list:
		exit(writeNames())
	default:
		framework.AfterReadingAllFlags(&framework.TestContext)
		run := &testing.T{}
		e2e.RunE2ETests(run)
		if run.Failed() {
			os.Exit(1)
		}
	}
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// writeNames writes the release's conformance tests, sorted, after a check that all of them are in this program.
func writeNames() error {
	data, err := testfiles.Read(register)
	if err != nil {
		return err
	}
	var tests []struct {
		Codename string `json:"codename"`
	}
	if err := yaml.Unmarshal(data, &tests); err != nil {
		return fmt.Errorf("%s: %w", register, err)
	}
	here := map[string]bool{}
	for _, spec := range ginkgo.PreviewSpecs("Kubernetes e2e suite").SpecReports {
		here[spec.FullText()] = true
	}
	var names, missing []string
	for _, test := range tests {
		name := strings.Join(strings.Fields(test.Codename), " ")
		names = append(names, name)
		if !here[name] {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%d conformance tests of the release are not in this program, %q among them", len(missing), missing[0])
	}
	slices.Sort(names)
	fmt.Println(strings.Join(names, "\n"))
	return nil
}
