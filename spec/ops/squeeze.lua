--- squeeze: sample data.
return {
  calls = {
    {x = {3, 1, 4, 1}}, {x = {3, 1, 4, 1}, dims = {2}}, {x = {3, 4}, dims = {1}},
    {x = {1, 3, 1}, dims = {1, -1}},
  },
  empty = {{x = {0, 1}}}, scalar = {{x = {}}},
  smooth = true, expect = {{{x = {{1, 2}}}, {1, 2}}},
}
