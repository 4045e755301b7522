--- slice: sample data.
return {
  calls = {
    {x = {5, 4}, dim = 1, start = 2}, {x = {5, 4}, dim = 1, start = 1, stop = 5, step = 2},
    {x = {3, 4}, dim = -1, start = -3, stop = -2}, {x = {3, 4}, dim = 2, stop = 2},
  },
  empty = {{x = {0, 4}, dim = 2, start = 2}, {x = {3, 4}, dim = 1, start = 3, stop = 2}},
  smooth = true, expect = {{{x = {1, 2, 3, 4, 5}, dim = 1, start = 2, stop = 5, step = 2}, {2, 4}}},
}
