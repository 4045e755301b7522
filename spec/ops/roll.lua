--- roll: sample data.
return {
  calls = {
    {x = {3, 4}, shifts = {1}, dims = {1}}, {x = {2, 3, 4}, shifts = {-1, 5}, dims = {1, -1}},
    {x = {3, 4}, shifts = {2}},
  },
  empty = {{x = {0, 4}, shifts = {1}, dims = {2}}}, smooth = true,
  large = {x = {317, 317}, shifts = {3}}, expect = {{{x = {1, 2, 3}, shifts = {1}, dims = {1}}, {3, 1, 2}}},
}
