; direct.tiled|y.m=2,y.n=2
; a, b, y
define void @kernel_r0(ptr %args, i64 %thread, i64 %threads) #0 {
entry:
  %v1 = getelementptr ptr, ptr %args, i64 0
  %base2 = load ptr, ptr %v1, align 8
  %v3 = getelementptr ptr, ptr %args, i64 1
  %base4 = load ptr, ptr %v3, align 8
  %v5 = getelementptr ptr, ptr %args, i64 2
  %base6 = load ptr, ptr %v5, align 8
  %v7 = mul i64 %thread, 4
  %v8 = udiv i64 %v7, %threads
  %v9 = add i64 %thread, 1
  %v10 = mul i64 %v9, 4
  %v11 = udiv i64 %v10, %threads
  %v13 = icmp slt i64 %v8, %v11
  br i1 %v13, label %L12, label %L12.exit
L12:
  %_p.L12 = phi i64 [ %v8, %entry ], [ %v103, %B18.end ]
  %v14 = udiv i64 %_p.L12, 2
  %v15 = urem i64 %v14, 2
  %v16 = urem i64 %_p.L12, 2
  %h21 = mul nsw i64 %v15, 42
  %h22 = getelementptr float, ptr %base2, i64 %h21
  %h26 = getelementptr float, ptr %base4, i64 %h21
  %h32 = getelementptr float, ptr %base6, i64 %h21
  %h23 = mul nsw i64 %v16, 16
  %h24 = getelementptr float, ptr %h22, i64 %h23
  %h27 = getelementptr float, ptr %h26, i64 %h23
  %h33 = getelementptr float, ptr %h32, i64 %h23
  %h76 = getelementptr float, ptr %base2, i64 %h23
  %h79 = getelementptr float, ptr %base4, i64 %h23
  %h85 = getelementptr float, ptr %base6, i64 %h23
  %v17 = icmp slt i64 %v15, 1
  br i1 %v17, label %B18.yes, label %B18.no
B18.yes:
  %v19 = icmp slt i64 %v16, 1
  br i1 %v19, label %B20.yes, label %B20.no
B20.yes:
  %v25 = load <8 x float>, ptr %h24, align 4
  %v28 = load <8 x float>, ptr %h27, align 4
  %v29 = fadd <8 x float> %v25, %v28
  %v30 = fcmp olt <8 x float> %v29, splat (float 0x0000000000000000)
  %v31 = select <8 x i1> %v30, <8 x float> splat (float 0x0000000000000000), <8 x float> %v29
  store <8 x float> %v31, ptr %h33, align 4
  %p34 = getelementptr float, ptr %h24, i64 8
  %v35 = load <8 x float>, ptr %p34, align 4
  %p36 = getelementptr float, ptr %h27, i64 8
  %v37 = load <8 x float>, ptr %p36, align 4
  %v38 = fadd <8 x float> %v35, %v37
  %v39 = fcmp olt <8 x float> %v38, splat (float 0x0000000000000000)
  %v40 = select <8 x i1> %v39, <8 x float> splat (float 0x0000000000000000), <8 x float> %v38
  %p41 = getelementptr float, ptr %h33, i64 8
  store <8 x float> %v40, ptr %p41, align 4
  %p42 = getelementptr float, ptr %h24, i64 21
  %v43 = load <8 x float>, ptr %p42, align 4
  %p44 = getelementptr float, ptr %h27, i64 21
  %v45 = load <8 x float>, ptr %p44, align 4
  %v46 = fadd <8 x float> %v43, %v45
  %v47 = fcmp olt <8 x float> %v46, splat (float 0x0000000000000000)
  %v48 = select <8 x i1> %v47, <8 x float> splat (float 0x0000000000000000), <8 x float> %v46
  %p49 = getelementptr float, ptr %h33, i64 21
  store <8 x float> %v48, ptr %p49, align 4
  %p50 = getelementptr float, ptr %h24, i64 29
  %v51 = load <8 x float>, ptr %p50, align 4
  %p52 = getelementptr float, ptr %h27, i64 29
  %v53 = load <8 x float>, ptr %p52, align 4
  %v54 = fadd <8 x float> %v51, %v53
  %v55 = fcmp olt <8 x float> %v54, splat (float 0x0000000000000000)
  %v56 = select <8 x i1> %v55, <8 x float> splat (float 0x0000000000000000), <8 x float> %v54
  %p57 = getelementptr float, ptr %h33, i64 29
  store <8 x float> %v56, ptr %p57, align 4
  br label %B20.end
B20.no:
  %p58 = getelementptr float, ptr %h22, i64 16
  %v59 = load <8 x float>, ptr %p58, align 4
  %p60 = getelementptr float, ptr %h26, i64 16
  %v61 = load <8 x float>, ptr %p60, align 4
  %v62 = fadd <8 x float> %v59, %v61
  %v63 = fcmp olt <8 x float> %v62, splat (float 0x0000000000000000)
  %v64 = select <8 x i1> %v63, <8 x float> splat (float 0x0000000000000000), <8 x float> %v62
  %p65 = getelementptr float, ptr %h32, i64 16
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v64, ptr align 4 %p65, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0>)
  %p66 = getelementptr float, ptr %h22, i64 37
  %v67 = load <8 x float>, ptr %p66, align 4
  %p68 = getelementptr float, ptr %h26, i64 37
  %v69 = load <8 x float>, ptr %p68, align 4
  %v70 = fadd <8 x float> %v67, %v69
  %v71 = fcmp olt <8 x float> %v70, splat (float 0x0000000000000000)
  %v72 = select <8 x i1> %v71, <8 x float> splat (float 0x0000000000000000), <8 x float> %v70
  %p73 = getelementptr float, ptr %h32, i64 37
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v72, ptr align 4 %p73, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0>)
  br label %B20.end
B20.end:
  br label %B18.end
B18.no:
  %v74 = icmp slt i64 %v16, 1
  br i1 %v74, label %B75.yes, label %B75.no
B75.yes:
  %p77 = getelementptr float, ptr %h76, i64 42
  %v78 = load <8 x float>, ptr %p77, align 4
  %p80 = getelementptr float, ptr %h79, i64 42
  %v81 = load <8 x float>, ptr %p80, align 4
  %v82 = fadd <8 x float> %v78, %v81
  %v83 = fcmp olt <8 x float> %v82, splat (float 0x0000000000000000)
  %v84 = select <8 x i1> %v83, <8 x float> splat (float 0x0000000000000000), <8 x float> %v82
  %p86 = getelementptr float, ptr %h85, i64 42
  store <8 x float> %v84, ptr %p86, align 4
  %p87 = getelementptr float, ptr %h76, i64 50
  %v88 = load <8 x float>, ptr %p87, align 4
  %p89 = getelementptr float, ptr %h79, i64 50
  %v90 = load <8 x float>, ptr %p89, align 4
  %v91 = fadd <8 x float> %v88, %v90
  %v92 = fcmp olt <8 x float> %v91, splat (float 0x0000000000000000)
  %v93 = select <8 x i1> %v92, <8 x float> splat (float 0x0000000000000000), <8 x float> %v91
  %p94 = getelementptr float, ptr %h85, i64 50
  store <8 x float> %v93, ptr %p94, align 4
  br label %B75.end
B75.no:
  %p95 = getelementptr float, ptr %base2, i64 58
  %v96 = load <8 x float>, ptr %p95, align 4
  %p97 = getelementptr float, ptr %base4, i64 58
  %v98 = load <8 x float>, ptr %p97, align 4
  %v99 = fadd <8 x float> %v96, %v98
  %v100 = fcmp olt <8 x float> %v99, splat (float 0x0000000000000000)
  %v101 = select <8 x i1> %v100, <8 x float> splat (float 0x0000000000000000), <8 x float> %v99
  %p102 = getelementptr float, ptr %base6, i64 58
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v101, ptr align 4 %p102, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0>)
  br label %B75.end
B75.end:
  br label %B18.end
B18.end:
  %v103 = add nuw nsw i64 %_p.L12, 1
  %v104 = icmp slt i64 %v103, %v11
  br i1 %v104, label %L12, label %L12.exit
L12.exit:
  ret void
}
