; direct.tiled|y.m=2,y.n=2
; a, b, y
define void @kernel_r0(ptr %args, i64 %thread, i64 %first, i64 %past) #0 {
entry:
  %v1 = getelementptr ptr, ptr %args, i64 0
  %base2 = load ptr, ptr %v1, align 8
  %v3 = getelementptr ptr, ptr %args, i64 1
  %base4 = load ptr, ptr %v3, align 8
  %v5 = getelementptr ptr, ptr %args, i64 2
  %base6 = load ptr, ptr %v5, align 8
  %v8 = icmp slt i64 %first, %past
  br i1 %v8, label %L7, label %L7.exit
L7:
  %_p.L7 = phi i64 [ %first, %entry ], [ %v99, %B13.end ]
  %v9 = udiv i64 %_p.L7, 2
  %v10 = urem i64 %v9, 2
  %v11 = urem i64 %_p.L7, 2
  %h16 = mul nsw i64 %v10, 42
  %h17 = getelementptr float, ptr %base2, i64 %h16
  %h21 = getelementptr float, ptr %base4, i64 %h16
  %h27 = getelementptr float, ptr %base6, i64 %h16
  %h18 = mul nsw i64 %v11, 16
  %h19 = getelementptr float, ptr %h17, i64 %h18
  %h22 = getelementptr float, ptr %h21, i64 %h18
  %h28 = getelementptr float, ptr %h27, i64 %h18
  %h71 = getelementptr float, ptr %base2, i64 %h18
  %h74 = getelementptr float, ptr %base4, i64 %h18
  %h80 = getelementptr float, ptr %base6, i64 %h18
  %v12 = icmp slt i64 %v10, 1
  br i1 %v12, label %B13.yes, label %B13.no
B13.yes:
  %v14 = icmp slt i64 %v11, 1
  br i1 %v14, label %B15.yes, label %B15.no
B15.yes:
  %v20 = load <8 x float>, ptr %h19, align 4
  %v23 = load <8 x float>, ptr %h22, align 4
  %v24 = fadd <8 x float> %v20, %v23
  %v25 = fcmp olt <8 x float> %v24, splat (float 0x0000000000000000)
  %v26 = select <8 x i1> %v25, <8 x float> splat (float 0x0000000000000000), <8 x float> %v24
  store <8 x float> %v26, ptr %h28, align 4
  %p29 = getelementptr float, ptr %h19, i64 8
  %v30 = load <8 x float>, ptr %p29, align 4
  %p31 = getelementptr float, ptr %h22, i64 8
  %v32 = load <8 x float>, ptr %p31, align 4
  %v33 = fadd <8 x float> %v30, %v32
  %v34 = fcmp olt <8 x float> %v33, splat (float 0x0000000000000000)
  %v35 = select <8 x i1> %v34, <8 x float> splat (float 0x0000000000000000), <8 x float> %v33
  %p36 = getelementptr float, ptr %h28, i64 8
  store <8 x float> %v35, ptr %p36, align 4
  %p37 = getelementptr float, ptr %h19, i64 21
  %v38 = load <8 x float>, ptr %p37, align 4
  %p39 = getelementptr float, ptr %h22, i64 21
  %v40 = load <8 x float>, ptr %p39, align 4
  %v41 = fadd <8 x float> %v38, %v40
  %v42 = fcmp olt <8 x float> %v41, splat (float 0x0000000000000000)
  %v43 = select <8 x i1> %v42, <8 x float> splat (float 0x0000000000000000), <8 x float> %v41
  %p44 = getelementptr float, ptr %h28, i64 21
  store <8 x float> %v43, ptr %p44, align 4
  %p45 = getelementptr float, ptr %h19, i64 29
  %v46 = load <8 x float>, ptr %p45, align 4
  %p47 = getelementptr float, ptr %h22, i64 29
  %v48 = load <8 x float>, ptr %p47, align 4
  %v49 = fadd <8 x float> %v46, %v48
  %v50 = fcmp olt <8 x float> %v49, splat (float 0x0000000000000000)
  %v51 = select <8 x i1> %v50, <8 x float> splat (float 0x0000000000000000), <8 x float> %v49
  %p52 = getelementptr float, ptr %h28, i64 29
  store <8 x float> %v51, ptr %p52, align 4
  br label %B15.end
B15.no:
  %p53 = getelementptr float, ptr %h17, i64 16
  %v54 = load <8 x float>, ptr %p53, align 4
  %p55 = getelementptr float, ptr %h21, i64 16
  %v56 = load <8 x float>, ptr %p55, align 4
  %v57 = fadd <8 x float> %v54, %v56
  %v58 = fcmp olt <8 x float> %v57, splat (float 0x0000000000000000)
  %v59 = select <8 x i1> %v58, <8 x float> splat (float 0x0000000000000000), <8 x float> %v57
  %p60 = getelementptr float, ptr %h27, i64 16
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v59, ptr align 4 %p60, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0>)
  %p61 = getelementptr float, ptr %h17, i64 37
  %v62 = load <8 x float>, ptr %p61, align 4
  %p63 = getelementptr float, ptr %h21, i64 37
  %v64 = load <8 x float>, ptr %p63, align 4
  %v65 = fadd <8 x float> %v62, %v64
  %v66 = fcmp olt <8 x float> %v65, splat (float 0x0000000000000000)
  %v67 = select <8 x i1> %v66, <8 x float> splat (float 0x0000000000000000), <8 x float> %v65
  %p68 = getelementptr float, ptr %h27, i64 37
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v67, ptr align 4 %p68, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0>)
  br label %B15.end
B15.end:
  br label %B13.end
B13.no:
  %v69 = icmp slt i64 %v11, 1
  br i1 %v69, label %B70.yes, label %B70.no
B70.yes:
  %p72 = getelementptr float, ptr %h71, i64 42
  %v73 = load <8 x float>, ptr %p72, align 4
  %p75 = getelementptr float, ptr %h74, i64 42
  %v76 = load <8 x float>, ptr %p75, align 4
  %v77 = fadd <8 x float> %v73, %v76
  %v78 = fcmp olt <8 x float> %v77, splat (float 0x0000000000000000)
  %v79 = select <8 x i1> %v78, <8 x float> splat (float 0x0000000000000000), <8 x float> %v77
  %p81 = getelementptr float, ptr %h80, i64 42
  store <8 x float> %v79, ptr %p81, align 4
  %p82 = getelementptr float, ptr %h71, i64 50
  %v83 = load <8 x float>, ptr %p82, align 4
  %p84 = getelementptr float, ptr %h74, i64 50
  %v85 = load <8 x float>, ptr %p84, align 4
  %v86 = fadd <8 x float> %v83, %v85
  %v87 = fcmp olt <8 x float> %v86, splat (float 0x0000000000000000)
  %v88 = select <8 x i1> %v87, <8 x float> splat (float 0x0000000000000000), <8 x float> %v86
  %p89 = getelementptr float, ptr %h80, i64 50
  store <8 x float> %v88, ptr %p89, align 4
  br label %B70.end
B70.no:
  %p90 = getelementptr float, ptr %base2, i64 58
  %v91 = load <8 x float>, ptr %p90, align 4
  %p92 = getelementptr float, ptr %base4, i64 58
  %v93 = load <8 x float>, ptr %p92, align 4
  %v94 = fadd <8 x float> %v91, %v93
  %v95 = fcmp olt <8 x float> %v94, splat (float 0x0000000000000000)
  %v96 = select <8 x i1> %v95, <8 x float> splat (float 0x0000000000000000), <8 x float> %v94
  %p97 = getelementptr float, ptr %base6, i64 58
  call void @llvm.masked.store.v8f32.p0(<8 x float> %v96, ptr align 4 %p97, <8 x i1> <i1 1, i1 1, i1 1, i1 1, i1 1, i1 0, i1 0, i1 0>)
  br label %B70.end
B70.end:
  br label %B13.end
B13.end:
  %v98 = add nuw nsw i64 %_p.L7, 1
  %v99 = call i64 asm "", "=r,0"(i64 %v98)
  %v100 = icmp slt i64 %v99, %past
  br i1 %v100, label %L7, label %L7.exit
L7.exit:
  ret void
}
