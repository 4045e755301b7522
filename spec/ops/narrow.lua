--- narrow: sample data.
return {
  calls = {{x = {3, 4}, dim = 1, start = 2, length = 2}, {x = {3, 4}, dim = -1, start = -3, length = 2}},
  empty = {{x = {3, 4}, dim = 1, start = 1, length = 0}, {x = {0, 4}, dim = 2, start = 2, length = 2}},
  smooth = true, expect = {{{x = {1, 2, 3}, dim = 1, start = 2, length = 2}, {2, 3}}},
}
