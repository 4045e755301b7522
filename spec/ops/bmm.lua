--- bmm: sample data.
return {
  calls = {{a = {2, 3, 4}, b = {2, 4, 2}}},
  empty = {{a = {0, 3, 4}, b = {0, 4, 2}}, {a = {2, 3, 0}, b = {2, 0, 2}}}, smooth = true, magnitude = 10,
  large = {a = {3, 131, 97}, b = {3, 97, 63}}, expect = {{{a = {{{1, 2}}}, b = {{{3}, {4}}}}, {{{11}}}}},
}
