// Command kube is the control plane of the chart's tests in one program: its first argument says which part.
package main

import (
	"fmt"
	"os"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: kube apiserver|controllers|kubectl [ARGUMENT...]")
		os.Exit(2)
	}
	part := os.Args[1]
	os.Args = append([]string{part}, os.Args[2:]...)
	switch part {
	case "apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "controllers":
		os.Exit(cli.Run(controllers.NewControllerManagerCommand()))
	case "kubectl":
		os.Exit(cli.Run(kubectl.NewDefaultKubectlCommand()))
	default:
		fmt.Fprintf(os.Stderr, "unknown part %q: expected apiserver, controllers or kubectl\n", part)
		os.Exit(2)
	}
}
