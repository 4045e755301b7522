--- unfold: sample data.
return {
  calls = {
    {x = {7}, dim = 1, size = 3, step = 2}, {x = {3, 5}, dim = 2, size = 2, step = 1},
    {x = {4, 3}, dim = 1, size = 3, step = 1},
  },
  empty = {{x = {0, 5}, dim = 2, size = 2, step = 1}},
  smooth = true, expect = {{{x = {1, 2, 3, 4}, dim = 1, size = 2, step = 1}, {{1, 2}, {2, 3}, {3, 4}}}},
}
