package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// studyResult is what a study found that lies in a directory of the figures'.
type studyResult struct {
	name   string
	Trends []struct {
		Claim  string `json:"claim"`
		Where  string `json:"where"`
		Found  string `json:"found"`
		Agrees bool   `json:"agrees"`
		Goal   bool   `json:"goal"`
	} `json:"trends"`
}

// studiesIn reads the studies' results below a directory: NAME/NAME.json.
func studiesIn(dir string) (list []studyResult, err error) {
	for _, s := range figureSets() {
		if !s.study {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, s.name, s.name+".json"))
		if os.IsNotExist(err) {
			continue
		}
		r := studyResult{name: s.name}
		if err == nil {
			err = json.Unmarshal(text, &r)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: measure it again by edgebench figures --only %s", err, s.name)
		}
		list = append(list, r)
	}
	return list, nil
}

func studyNames(list []studyResult) (names []string) {
	for _, s := range list {
		names = append(names, s.name)
	}
	return names
}

// String says how many of the paper's claims hold, and which do not.
func (s studyResult) String() string {
	yes, all, differ := 0, 0, ""
	for _, t := range s.Trends {
		switch {
		case t.Goal:
			continue
		case t.Agrees:
			yes++
		default:
			differ += fmt.Sprintf("\n         DIFFERS  %s: %s (%s)", t.Where, t.Claim, t.Found)
		}
		all++
	}
	return fmt.Sprintf("edgestudy %s: %d of %d claims of the paper hold%s", s.name, yes, all, differ)
}
