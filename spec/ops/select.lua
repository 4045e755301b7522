--- select: sample data.
return {
  calls = {{x = {3, 4}, dim = 1, index = 2}, {x = {3, 4}, dim = -1, index = -1}},
  empty = {{x = {0, 4}, dim = 2, index = 1}}, scalar = {{x = {3}, dim = 1, index = 2}},
  smooth = true, expect = {{{x = {{1, 2}, {3, 4}}, dim = 1, index = 2}, {3, 4}}},
}
